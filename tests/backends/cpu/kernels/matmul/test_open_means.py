"""Products of means over images of which only a call knows the sizes, as squeezing and exciting blocks have them."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from tvm import relax
from tvm.relax import op

from backends.cpu.kernels.shared.window import Window
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.open_images import RUNS, OpenKernel, Size, check_sizes
from tests.passes.modules import Build

SAME = Window((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
CHANNELS, FEW = 40, 10


def _excited(b: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
    means = b.emit(op.mean(image, [1, 2], keepdims=True))
    squeezed = b.emit(op.nn.relu(b.emit(op.matmul(means, relax.const(normal((CHANNELS, FEW), 1))))))
    return op.sigmoid(b.emit(op.matmul(squeezed, relax.const(normal((FEW, CHANNELS), 2)))))


def _classes(b: relax.BlockBuilder, image: relax.Var) -> relax.Expr:
    means = b.emit(op.mean(image, [1, 2]))
    return op.add(b.emit(op.matmul(means, relax.const(normal((CHANNELS, 70), 1)))), relax.const(normal((70,), 2)))


@pytest.mark.parametrize("build", [_excited, _classes])
@pytest.mark.parametrize(("threads", "target", "sizes"), RUNS)
def test_means_are_rows(build: Build, threads: int, target: str, sizes: Sequence[Size]) -> None:
    kernel = OpenKernel(build, lambda n, h, w: [(n, h, w, CHANNELS)], SAME)
    check_sizes(kernel, "matmul", threads, target, sizes)
