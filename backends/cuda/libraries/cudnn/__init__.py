"""cuDNN: convolutions of two dimensions with a bias, a residual and a maximum behind them."""
