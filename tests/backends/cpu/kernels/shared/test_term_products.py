"""Products of float32 as products of terms, in tiles: as exact as multiply-adds, whatever the sizes and the numbers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest import mock

import numpy as np
import pytest
import tvm
from torch import from_numpy
from torch.nn import functional
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu import amx
from backends.cpu.costs import FIRST_TILES_CYCLES
from backends.cpu.kernels import priority
from backends.cpu.kernels.shared.blocking import choose_blocking, tile_blockings
from backends.cpu.kernels.shared.contraction import Blocking
from backends.cpu.kernels.shared.extents import Extents, may_be_in_tiles
from backends.cpu.kernels.shared.open_contraction import OpenBlocking
from backends.cpu.kernels.shared.packed_tiles import TilePacking
from backends.cpu.kernels.shared.term_products import FLOAT32_TERMS
from backends.cpu.kernels.shared.tile_products import TileSteps, TileWeights
from backends.cpu.machine import Machine
from backends.tensorir.space import Space
from fusion import context
from partition.access import CONV2D, MATMUL
from tests.backends.cpu.kernels.anchored import always, normal, run
from tests.backends.cpu.kernels.templates import changed
from tests.passes.modules import Build
from tuning.filled_tensors import FILLER

EMERALD_RAPIDS = Machine(16, 32, 48 << 10, 2 << 20, 260 << 20, l1_ways=12, tiles=True)

needs_tiles = pytest.mark.skipif(not context.resolve("llvm").compiler.machine.tiles, reason="the CPU has no tiles")


@contextmanager
def in_tiles(name: str, share: float = 0.0) -> Iterator[None]:
    """Let a family choose a point in tiles, that at `share` of the way through them."""
    (template,) = (each for each in priority.TEMPLATES if each.name == name)

    def space(parts: Any, machine: Machine, threads: int) -> Space[Any]:
        found = template.space(parts, machine, threads)
        points = [point for point in found if isinstance(point, Blocking) and point.in_tiles]
        return Space(points[int(share * (len(points) - 1))], found.every)

    with changed(name, space=space):
        yield


@contextmanager
def refused() -> Iterator[None]:
    """Let kernels ask Linux for something that it does not grant."""
    asking = amx._GRANTS.replace("i64 4131", "i64 65535")
    assert asking != amx._GRANTS
    with mock.patch.object(amx, "_GRANTS", asking):
        yield


def product(depth: int, channels: int) -> Build:
    """Return rows times a matrix, with a bias, beside a relu of it."""
    weights, bias = normal((depth, channels), 1), normal((channels,), 2)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        sums = b.emit(op.add(b.emit(op.matmul(x, relax.const(weights))), relax.const(bias)))
        return relax.Tuple([sums, b.emit(op.nn.relu(sums))])

    return build


def is_as_exact(found: np.ndarray, rows: np.ndarray, weights: np.ndarray, bias: np.ndarray | float = 0.0) -> None:
    """Hold the error of a product to that of NumPy's in float32, which multiplies and adds."""
    exact = rows.astype("float64") @ weights.astype("float64") + bias
    allowed = 2 * np.abs(rows @ weights + bias - exact).max() + 1e-7 * np.abs(exact).max()
    assert np.abs(found - exact).max() <= allowed


@needs_tiles
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize(
    ("rows", "depth", "channels"),
    [(1, 1, 1), (3, 5, 7), (32, 32, 16), (33, 64, 17), (70, 63, 40), (100, 95, 300), (64, 1600, 33), (31, 31, 272),
     (130, 600, 300), (1100, 300, 40)],
)  # fmt: skip
def test_products_in_terms_are_as_exact(rows: int, depth: int, channels: int, threads: int) -> None:
    data = normal((rows, depth), 0)
    with in_tiles(MATMUL, share=threads - 1):
        sums, positive = run(product(depth, channels), [data], "llvm", threads).outputs
    is_as_exact(sums, data, normal((depth, channels), 1), normal((channels,), 2))
    np.testing.assert_array_equal(positive, np.maximum(sums, 0))


@needs_tiles
@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_rows_that_the_kernel_makes_and_products_that_read_each_other(share: float) -> None:
    first, second, data = normal((70, 50), 1), normal((70, 50), 2), normal((90, 70), 0)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        ones = relax.const(np.ones(70, "float32"))
        rows = b.emit(op.nn.layer_norm(x, ones, ones, [-1]))
        gate, value = (b.emit(op.matmul(rows, relax.const(each))) for each in (first, second))
        return b.emit(op.multiply(b.emit(op.sigmoid(gate)), value))

    with in_tiles(MATMUL, share):
        ran = run(build, [data], "llvm", 2, judge=always)
    assert ran.templates() == [MATMUL]
    wide = data.astype("float64")
    rows = (wide - wide.mean(-1, keepdims=True)) / np.sqrt(wide.var(-1, keepdims=True) + 1e-5) + 1
    np.testing.assert_allclose(ran.outputs[0], rows @ second / (1 + np.exp(-(rows @ first))), rtol=1e-4, atol=1e-4)


@needs_tiles
@pytest.mark.parametrize(
    ("depth", "kernel", "stride", "padding", "channels"),
    [(32, 1, 1, 0, 48), (20, 3, 2, 1, 40), (64, 3, 1, 1, 16), (33, 5, 2, 2, 17), (64, 1, 2, 0, 20)],
)
def test_convolutions(depth: int, kernel: int, stride: int, padding: int, channels: int) -> None:
    data, weights = normal((2, 13, 11, depth), 0), normal((channels, depth, kernel, kernel), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.nn.conv2d(
            x, relax.const(weights), strides=stride, padding=padding, data_layout="NHWC", kernel_layout="OIHW"
        )

    images, wide = (from_numpy(each).double() for each in (data.transpose(0, 3, 1, 2).copy(), weights))
    exact = functional.conv2d(images, wide, stride=stride, padding=padding).permute(0, 2, 3, 1).numpy()
    for share in (0.0, 1.0):
        with in_tiles(CONV2D, share):
            (found,) = run(build, [data], "llvm", 2).outputs
        np.testing.assert_allclose(found, exact, rtol=2e-5, atol=1e-5 * np.abs(exact).max())


@needs_tiles
@pytest.mark.parametrize("special", [np.inf, -np.inf, np.nan])
def test_infinities_and_nan_come_through_as_in_float32(special: float) -> None:
    data = np.abs(normal((70, 300), 0))
    data[3, 7] = data[40, 290] = special
    with in_tiles(MATMUL), np.errstate(invalid="ignore"):
        sums, _ = run(product(300, 24), [data], "llvm", 1).outputs
        expected = data @ normal((300, 24), 1) + normal((24,), 2)
    np.testing.assert_array_equal(np.isfinite(sums), np.isfinite(expected))
    np.testing.assert_allclose(sums, expected, rtol=1e-4, atol=1e-3)


@needs_tiles
@pytest.mark.parametrize("special", [np.inf, np.nan])
def test_weights_that_are_not_finite(special: float) -> None:
    weights, data = normal((130, 24), 1), normal((40, 130), 0)
    weights[5, 7] = weights[129, 0] = special

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights))

    with in_tiles(MATMUL), np.errstate(invalid="ignore"):
        (found,) = run(build, [data], "llvm", 1).outputs
        expected = data @ weights
    np.testing.assert_array_equal(np.isfinite(found), np.isfinite(expected))
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@needs_tiles
def test_a_matrix_that_makes_the_rows_too_is_split_by_tasks() -> None:
    weights, data = normal((48, 48), 1) / np.float32(7), normal((70, 48), 0)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        shared = relax.const(weights)
        return op.matmul(b.emit(op.nn.relu(b.emit(op.matmul(x, shared)))), shared)

    with in_tiles(MATMUL):
        ran = run(build, [data], "llvm", 2, judge=always)
    assert ran.templates() == [MATMUL]
    wide = weights.astype("float64")
    np.testing.assert_allclose(ran.outputs[0], np.maximum(data @ wide, 0) @ wide, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("taps", "depth"), [((), 45), ((3, 2), 32), ((1,), 97)])
def test_terms_are_packed_without_a_rest(taps: tuple[int, ...], depth: int) -> None:
    steps = TileSteps(taps, depth, FLOAT32_TERMS)
    panels = normal((3, *taps, depth, 16), 0) * np.float32(2.0) ** np.arange(-40, -40 + depth, dtype="float32")[:, None]
    *words, flag = np.split(TilePacking(steps)(panels).view("uint32"), [-16])
    assert not flag.any()
    terms = words[0].reshape(-1, 3, 4, 3, 16, 16)
    values = np.stack([terms << 16, terms & np.uint32(0xFFFF0000)], axis=5).view("float32").astype("float64").sum(3)
    exact = values.swapaxes(0, 1).reshape(3, -1, 32, 16)[:, : steps.count].reshape(3, -1, steps.of_tap * 32, 16)
    np.testing.assert_array_equal(exact[:, :, :depth].reshape(panels.shape), panels)
    assert not exact[:, :, depth:].any()


def test_packing_says_where_weights_are_not_finite() -> None:
    panels = normal((1, 32, 16), 0)
    panels[0, 3, 5] = np.nan
    assert TilePacking(TileSteps((), 32, FLOAT32_TERMS))(panels).view("uint32")[-16:].all()


def test_what_is_measured_with_bytes_for_weights_is_measured_in_tiles() -> None:
    """Bytes that no packing wrote say that weights are finite, and `TilePacking` says it of those that are."""
    steps = TileSteps((), 64, FLOAT32_TERMS)
    weights, found = TileWeights.declare("weights", 1, steps), tirx.decl_buffer((1,), "int32", "found")
    store = tirx.BufferStore(found, tirx.Cast("int32", weights.are_finite()), [0])
    func = tirx.PrimFunc([weights.memory, found], store).with_attr("global_symbol", "ask")
    library = tvm.compile(tvm.IRModule({"ask": func}), context.resolve("llvm").target)
    finite = np.ones((1, 64, 16), "float32")
    for packed, are in (
        (TilePacking(steps)(finite), True),
        (TilePacking(steps)(np.full_like(finite, np.inf)), False),
        (np.full(TilePacking(steps)(finite).nbytes, FILLER, np.uint8).view("float32"), True),
    ):
        answer = tvm.runtime.tensor(np.zeros(1, "int32"))
        library["ask"](tvm.runtime.tensor(packed), answer)
        assert answer.numpy() == [are]


@needs_tiles
def test_the_largest_numbers_stay_finite() -> None:
    data = np.full((3, 64), np.finfo("float32").max)
    weights = np.zeros((64, 5), "float32")
    weights[0] = 1

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.matmul(x, relax.const(weights))

    with in_tiles(MATMUL):
        (found,) = run(build, [data], "llvm", 1).outputs
    np.testing.assert_array_equal(found, data @ weights)


@needs_tiles
def test_where_no_tiles_are_granted_products_are_those_of_float32() -> None:
    data = normal((70, 90), 0)
    with in_tiles(MATMUL), refused():
        sums, _ = run(product(90, 40), [data], "llvm", 2).outputs
    is_as_exact(sums, data, normal((90, 40), 1), normal((40,), 2))


def sizes(rows: int, depth: int, channels: int, tiles: bool = True) -> Extents:
    """Return those of rows times a packed matrix."""
    extents = Extents(
        outer=1, groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth, lanes=16,
        input_bytes=4 * rows * depth, row_pitch=4 * depth,
    )  # fmt: skip
    return may_be_in_tiles(extents, Machine(16, 32, 48 << 10, 2 << 20, 260 << 20, l1_ways=12, tiles=tiles))


@pytest.mark.parametrize("shape", [(2048, 768, 768), (2048, 768, 3072), (512, 768, 768), (1024, 512, 512)])
def test_many_rows_times_large_matrices_are_multiplied_in_terms(shape: tuple[int, int, int]) -> None:
    assert choose_blocking(sizes(*shape), EMERALD_RAPIDS, 2).in_tiles


@pytest.mark.parametrize("shape", [(1, 768, 768), (14, 768, 3072), (16, 768, 768), (3136, 24, 96)])
def test_few_rows_and_short_ones_are_not(shape: tuple[int, int, int]) -> None:
    assert not choose_blocking(sizes(*shape), EMERALD_RAPIDS, 2).in_tiles


@pytest.mark.parametrize("shape", [(64, 96, 384), (128, 96, 384)])
def test_small_products_are_not_worth_a_start_with_tiles(shape: tuple[int, int, int]) -> None:
    """The products alone take less time in tiles; whole kernels took 1.2 and 1.1 times as long."""
    extents = sizes(*shape)
    tiles = min(tile_blockings(extents, EMERALD_RAPIDS, 2), key=lambda blocking: blocking.cycles)
    chosen = choose_blocking(extents, EMERALD_RAPIDS, 2)
    assert not chosen.in_tiles
    assert tiles.cycles - FIRST_TILES_CYCLES < chosen.cycles


def test_no_other_machine_in_tiles() -> None:
    extents = sizes(2048, 768, 768, tiles=False)
    assert not list(tile_blockings(extents, EMERALD_RAPIDS, 2))


def test_more_rows_are_worth_splitting_weights() -> None:
    packed, split = (
        min(blocking.cycles for blocking in tile_blockings(sizes(64, 768, 768), EMERALD_RAPIDS, 2, splits=splits))
        for splits in (False, True)
    )
    assert packed < split


@pytest.mark.parametrize(("depth", "channels"), [(768, 3072), (3072, 768), (384, 1536), (1536, 384)])
def test_open_rows_are_split_where_they_fill_tiles(depth: int, channels: int) -> None:
    """BERT-base's 65 rows, three times 32 of which a third is nothing, took 1.22 to 1.28 of their time in vectors, and
    take 1.00 to 1.03 since weights are fetched a block ahead."""
    any_rows = sizes(2**31 - 1, depth, channels)
    found = OpenBlocking.of([any_rows], any_rows, EMERALD_RAPIDS, 2).terms_from
    assert 56 <= found <= 96
    no_tiles = sizes(2**31 - 1, depth, channels, tiles=False)
    assert OpenBlocking.of([no_tiles], no_tiles, EMERALD_RAPIDS, 2).terms_from == 0


def test_threads_share_the_split_of_weights() -> None:
    """Two tasks of half of 217 rows split all weights twice and had eight times 32 rows: 3072x768 took 1.27 times as
    long as in two tasks of half of the channels, which have seven."""
    any_rows = sizes(2**31 - 1, 3072, 768)
    blocking = OpenBlocking.of([any_rows], any_rows, EMERALD_RAPIDS, 2)
    grids = {rows: (down, across) for rows, down, across in blocking.grids}
    assert grids[192] == grids[256] == grids[512] == (1, 2)
    assert all(rows < blocking.terms_from or rows // down >= blocking.terms_from for rows, (down, _) in grids.items())
