"""A convolution with a kernel of 3x3."""

from __future__ import annotations

from tests.backends.cpu.kernels.examples import Example, convolution

EXAMPLES = (Example(convolution(1, 20, 40, 3), (1, 13, 11, 20)),)
