"""Kernels built around one anchor: matmul, convolution and their kin, with everything elementwise behind them fused
in."""
