"""cuBLASLt, where its package is installed and named: products with a bias and a maximum behind them."""
