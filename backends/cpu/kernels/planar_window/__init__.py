"""Windows over images that lie plane by plane: depthwise convolution, maximum and average."""
