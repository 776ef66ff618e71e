"""Convolution over channels-last images, as a sum over taps or by Winograd's method."""
