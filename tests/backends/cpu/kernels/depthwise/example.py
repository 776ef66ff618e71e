"""A depthwise convolution, and one in groups."""

from __future__ import annotations

from tests.backends.cpu.kernels.examples import Example, convolution

EXAMPLES = (
    Example(convolution(40, 1, 40, 3), (1, 9, 10, 40)),
    Example(convolution(10, 4, 40, 3), (1, 9, 10, 40)),
)
