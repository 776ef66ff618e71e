"""The form of a 3x3 convolution of stride 1 with fewer multiplications."""
