"""What blocks of reductions bring into shared memory: counted as it is brought, and waited for once."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from backends.cuda.codegen.generate import generate_kernel
from backends.cuda.devices import A100
from backends.cuda.kernels.reductions.emit import emit_reductions
from backends.cuda.kernels.reductions.read import Reduction, read_reductions
from backends.cuda.kernels.reductions.runs.choose import runs_of
from backends.cuda.kernels.reductions.runs.plan import ReductionRuns
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.backends.cuda import emulated
from tests.backends.cuda.emulated import numbers
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.test_reductions import in_groups, in_groups_in_float64

pytestmark = pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT)

run = partial(emulated.run, partial(emit_reductions, device=A100))
STRIDED = {"strides": (2, 2)}


def by_channels(*shape: int, window: int) -> list[np.ndarray]:
    """Return an image, the weights of each channel, and their bias, of float16."""
    channels = shape[-1]
    shapes = (shape, (window, window, 1, channels), (channels,))
    return [numbers(*each).astype("float16") for each in shapes]


def runs_for(build: Build, arrays: list[np.ndarray]) -> ReductionRuns | None:
    """Return how the one reduction of a region is brought."""
    parts = read_reductions(prim_func(build, arrays))
    (stage,), (epilogue,) = parts.reductions, parts.regions
    return runs_of(Reduction(stage, parts.elementwise, epilogue))


@pytest.mark.parametrize(("shape", "window"), [((1, 12, 12, 200), 3), ((1, 5, 20, 68), 3), ((1, 9, 31, 120), 5)])
def test_sectors_of_what_blocks_hold_are_counted(shape: tuple[int, ...], window: int) -> None:
    """Weights and biases that each block brings again are a third and more of what it brings."""
    arrays = by_channels(*shape, window=window)
    build = partial(in_groups, shape[-1])
    runs = runs_for(build, arrays)
    assert runs is not None
    assert len(runs.held) == 2
    counts = run(build, *arrays)[1]
    assert runs.sectors() == pytest.approx(counts.load_sectors + counts.store_sectors, rel=0.05)


def test_a_block_waits_once_for_all_that_a_turn_brings() -> None:
    """Weights, biases and the first run of the image are on their way at the same time."""
    arrays = by_channels(1, 6, 8, 88, window=3)
    kernel = generate_kernel(emit_reductions(prim_func(partial(in_groups, 88), arrays), A100), "kernel", "sm_80")
    body = kernel.source[kernel.source.index("kernel_kernel(") :]
    assert body.count("start_run<") == 3
    assert body.count("wait_copies<") == body.count("commit_copies(") == 1
    assert "bring_run<" not in body


def test_a_scale_of_one_number_is_brought_once_a_block() -> None:
    """Each of its 30 warps would ask for a sector of it."""

    def scaled(b: relax.BlockBuilder, x: relax.Expr, w: relax.Expr, y: relax.Expr, scale: relax.Expr) -> relax.Expr:
        return op.multiply(b.emit(in_groups(40, b, x, w, y, padding=(2,) * 4)), scale)

    arrays, scale = by_channels(1, 3, 96, 40, window=5), np.array(0.5, "float16")
    done, counts = run(scaled, *arrays, scale)
    wanted = in_groups_in_float64(40, *arrays, border=2) * 0.5
    np.testing.assert_allclose(done.astype(np.float64), wanted, rtol=2**-10, atol=2**-9)
    assert counts.sector_share >= 0.95


@pytest.mark.parametrize(("channels", "window"), [(1017, 2), (1017, 3)])
def test_what_no_block_can_hold_does_not_keep_an_image_from_being_brought(channels: int, window: int) -> None:
    """A block of all channels of a pixel would need more threads than there are, one of 1,024 results goes on in the
    next row, of which a run is too long, and weights of 3 x 3 have no room: they are read where they lie. Threads
    that read all so use 70%."""
    arrays = by_channels(1, 20, 20, channels, window=window)
    build = partial(in_groups, channels, **STRIDED)
    runs = runs_for(build, arrays)
    assert runs is not None
    assert not runs.repeated
    done, counts = run(build, *arrays)
    wanted = in_groups_in_float64(channels, *arrays, stride=2)
    np.testing.assert_allclose(done.astype(np.float64), wanted, rtol=2**-10, atol=2**-9)
    assert counts.sector_share >= 0.78


@pytest.mark.parametrize("window", [2, 3])
def test_threads_of_several_neighbours_read_where_it_lies_what_no_block_can_hold(window: int) -> None:
    arrays = by_channels(1, 20, 20, 1016, window=window)
    build = partial(in_groups, 1016, **STRIDED)
    assert runs_for(build, arrays) is None
    assert run(build, *arrays)[1].sector_share >= 0.95
