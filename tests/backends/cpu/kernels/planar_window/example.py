"""A depthwise convolution of an image that lies plane by plane."""

from __future__ import annotations

from tests.backends.cpu.kernels.examples import Example, convolution

EXAMPLES = (Example(convolution(6, 1, 6, 3, layout="NCHW"), (1, 6, 20, 37)),)
