"""The first layer of a network."""

from __future__ import annotations

from tests.backends.cpu.kernels.examples import Example, convolution

EXAMPLES = (Example(convolution(1, 3, 20, 3, by_planes=True), (1, 3, 15, 18)),)
