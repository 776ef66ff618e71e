"""Depthwise convolution over channels-last images, and convolution in groups of which a vector has several."""
