"""A depthwise convolution or a pool with the convolutions before and behind it."""
