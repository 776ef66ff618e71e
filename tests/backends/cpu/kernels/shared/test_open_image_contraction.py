"""How the channels of convolutions over images of any size are cut."""

from __future__ import annotations

import pytest

from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_image_contraction import choose_panels, panels_of
from fusion import context


def _convolution(vectors: int, groups: int = 1) -> Extents:
    machine = context.resolve("llvm").compiler.machine
    return Extents(
        outer=1, groups=groups, height=8, width=8, channels=vectors * machine.vector_lanes, taps=(1, 3), depth=96,
        lanes=machine.vector_lanes, input_bytes=1 << 16,
    )  # fmt: skip


@pytest.mark.parametrize("vectors", [4, 6, 8, 15])
def test_threads_find_panels_to_share(vectors: int) -> None:
    """An image of one row has nothing else to share out."""
    machine, extents = context.resolve("llvm").compiler.machine, _convolution(vectors)
    assert panels_of(extents, choose_panels(extents, machine, threads=2)) >= 2


@pytest.mark.parametrize("vectors", [1, 2, 3, 4, 5, 8])
@pytest.mark.parametrize("groups", [1, 2])
def test_no_channel_is_computed_twice_for_that(vectors: int, groups: int) -> None:
    machine, extents = context.resolve("llvm").compiler.machine, _convolution(vectors, groups)
    alone, shared = (choose_panels(extents, machine, threads).table.tile.vectors for threads in (1, 2))
    computed = [-(-vectors // width) * width for width in (alone, shared)]
    assert computed[1] <= computed[0]
