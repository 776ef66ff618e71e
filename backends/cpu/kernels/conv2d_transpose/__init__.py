"""Transposed convolution over channels-last images."""
