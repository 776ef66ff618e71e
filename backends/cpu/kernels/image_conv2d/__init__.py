"""Convolution of an image of few channels that lies plane by plane: a network's first layer."""
