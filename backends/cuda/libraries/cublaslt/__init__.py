"""cuBLASLt: products with a bias, a residual and a maximum behind them."""
