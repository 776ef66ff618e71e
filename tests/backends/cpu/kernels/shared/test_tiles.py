"""Cutting loops: tiles cover every iteration once, and registers and grids stay within the machine."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tvm import tirx
from tvm.sym import Analyzer

from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RegisterTile, RowSets, choose
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import pieces

EXAMPLES = settings(max_examples=60, deadline=None, derandomize=True, database=None)
MACHINES = [
    Machine(16, 32, 48 << 10, 2 << 20, 32 << 20, l1_ways=12),
    Machine(8, 16, 32 << 10, 1 << 20, 16 << 20),
    Machine(4, 16, 1, 1, 1),
]
extents = st.integers(1, 400)


@EXAMPLES
@given(extents, st.integers(1, 40))
def test_split_covers_every_iteration_once(extent: int, tile: int) -> None:
    split = Split.of(extent, tile)
    sizes = [split.short + (index < split.long_tiles) for index in range(split.count)]
    starts = [split.start(index) for index in range(split.count)]
    assert [*starts, extent] == [0, *(start + size for start, size in zip(starts, sizes, strict=True))]
    assert max(sizes) == split.longest <= tile
    assert max(sizes) - min(sizes) <= 1
    assert sum(size * many for size, many in split.sizes()) == extent
    assert sum(many for _, many in split.sizes()) == split.count == -(-extent // tile)


@EXAMPLES
@given(extents, st.integers(1, 40))
def test_split_starts_are_the_same_for_expressions(extent: int, tile: int) -> None:
    split, analyzer = Split.of(extent, tile), Analyzer()
    for index in {0, split.count // 2, split.count - 1}:
        start = split.start(tirx.const(index, "int64"))
        assert int(analyzer.simplify(start)) == split.start(index)


@EXAMPLES
@given(st.integers(0, 200), st.sampled_from([1, 4, 8, 16]))
def test_pieces_cover_an_extent_with_powers_of_two(extent: int, lanes: int) -> None:
    found = pieces(extent, lanes)
    ends = [0, *(at + count for at, count in found)]
    assert [at for at, _ in found] == ends[:-1]
    assert ends[-1] == extent
    assert all(count & (count - 1) == 0 and count <= lanes for _, count in found)
    assert all(before >= after for (_, before), (_, after) in pairwise(found))


@EXAMPLES
@given(st.integers(1, 130), st.integers(1, 130), st.integers(1, 60), st.integers(1, 5000), st.sampled_from([16, 32]))
def test_register_tiles_fit_the_registers_and_the_image(
    height: int, width: int, vectors: int, depth: int, registers: int
) -> None:
    tile = choose(height, width, vectors, depth, registers)
    assert tile.registers() <= registers
    assert 1 <= tile.height <= height
    assert 1 <= tile.width <= width
    assert 1 <= tile.vectors <= vectors
    # A tile of several rows is whole rows, so that its pixels are a rectangle of the image.
    assert tile.height == 1 or tile.width == width or width == 1


@EXAMPLES
@given(
    st.sampled_from(MACHINES), st.integers(1, 8), st.integers(1, 4), st.sampled_from([1, 2, 8]), st.integers(1, 200),
    st.integers(1, 60), st.integers(1, 40), st.integers(1, 3000),
)  # fmt: skip
def test_blockings_stay_within_their_image(
    machine: Machine, threads: int, outer: int, groups: int, height: int, width: int, vectors: int, depth: int
) -> None:
    lanes = machine.vector_lanes
    extents = Extents(outer, groups, height, width, vectors * lanes, (), depth, lanes, 4 * height * width * depth)
    blocking = choose_blocking(extents, machine, threads)
    assert blocking.tile.registers() <= machine.vector_registers
    assert 1 <= blocking.row_chunks <= Split.of(height, blocking.tile.height).count
    panels = -(-vectors // blocking.tile.vectors) * groups
    assert 1 <= blocking.panel_chunks <= panels
    assert 1 <= blocking.panel_block <= panels


@pytest.mark.parametrize(("vectors", "rows", "used"), [(2, 14, 31), (3, 8, 28), (1, 1, 3)])
def test_registers_count_accumulators_weights_and_one_broadcast(vectors: int, rows: int, used: int) -> None:
    assert RegisterTile(rows, 1, vectors).registers() == used


# Rows, columns, channels, k: convolutions of ResNet-50, matmuls of BERT and ViT, thin layers of detectors.
LAYERS = [
    (56, 56, 64, 576), (28, 28, 128, 1152), (14, 14, 256, 2304), (7, 7, 512, 4608), (49, 1, 2048, 512),
    (128, 1, 768, 768), (128, 1, 3072, 768), (197, 1, 384, 1536), (3136, 1, 256, 64), (3600, 1, 24, 96),
]  # fmt: skip


@pytest.mark.parametrize("threads", [2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64])
def test_threads_have_even_shares(threads: int) -> None:
    """Tasks go to the threads in order, as many to each as to any other; 64 threads share 100 tiles of 7 x 7 pixels."""
    for height, width, channels, depth in LAYERS:
        sizes = Extents(1, 1, height, width, channels, (), depth, 16, 4 * height * width * min(depth, 512))
        blocking = choose_blocking(sizes, MACHINES[0], threads)
        rows = Split.of(height, blocking.tile.height).count
        panels = -(-sizes.vectors // blocking.tile.vectors)
        grid = product(_parts(rows, blocking.row_chunks), _parts(panels, blocking.panel_chunks))
        tasks = [tall * wide for tall, wide in grid]
        shares = [sum(tasks[len(tasks) * t // threads : len(tasks) * (t + 1) // threads]) for t in range(threads)]
        assert sum(tasks) / threads >= (0.85 if threads <= 8 else 0.66) * max(shares), (height, channels, str(blocking))


def _parts(extent: int, chunks: int) -> list[int]:
    return [size for size, many in Split(extent, chunks).sizes() for _ in range(many)]


def test_large_matmuls_use_the_measured_tiles() -> None:
    """research: 12 to 14 rows by 2 vectors, or 8 by 3, are the fast tiles with 32 registers of 16 lanes."""
    tile = choose(784, 1, 8, 1152, 32)
    assert (tile.rows, tile.vectors) in {(12, 2), (13, 2), (14, 2), (8, 3), (9, 3)}


@pytest.mark.parametrize(
    ("depth", "pitch", "most"), [(1024, 4096, 9), (3072, 12288, 9), (512, 2048, 14), (1040, 4160, 14)]
)
def test_tiles_have_no_more_rows_than_the_sets_hold_that_these_share(depth: int, pitch: int, most: int) -> None:
    machine = Machine(16, 32, 32 << 10, 1 << 20, 32 << 20)
    tile = choose(1024, 1, 16, depth, machine.vector_registers, sets=RowSets.of(pitch, machine))
    assert tile.rows == most


def test_rows_wait_for_sets_that_they_share_alone() -> None:
    machine = Machine(16, 32, 32 << 10, 1 << 20, 32 << 20)
    page, half, odd, unknown = (RowSets.of(pitch, machine) for pitch in (4096, 2048, 4160, 0))
    assert page.waits(9) == half.waits(18) == odd.waits(28) == unknown.waits(30) == 0
    assert page.waits(14) > 2 * page.waits(12) > 0
    assert half.waits(28) == 2 * page.waits(14)
    assert RowSets.of(4096, Machine(16, 32, 48 << 10, 2 << 20, 32 << 20, l1_ways=12)).waits(13) == 0
