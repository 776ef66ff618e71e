"""The ways to convolve that kernels of one convolution and of several share, and how each is cut."""
