"""When a product copies a right operand that lies as it comes: what was measured on two vCPUs of Emerald Rapids, and of
Skylake-X where rows begin inside of cache lines."""

from __future__ import annotations

from dataclasses import replace

import pytest

from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packed_blocking import PackedBlocking, choose_in_place, in_place_space
from backends.cpu.machine import Machine

EMERALD_RAPIDS = Machine(16, 32, 48 << 10, 2 << 20, 260 << 20, l1_ways=12)
GENOA = Machine(16, 32, 32 << 10, 1 << 20, 16 << 20)
SKYLAKE = Machine(16, 32, 32 << 10, 1 << 20, 33 << 20)


def product(rows: int, depth: int, channels: int, batch: int = 1, pitch: int | None = 1) -> Extents:
    """Return rows x depth x channels, the right operand as it lies; `pitch` is in rows of it."""
    return Extents(
        outer=batch, groups=1, height=rows, width=1, channels=channels, taps=(), depth=depth, lanes=16,
        input_bytes=4 * rows * depth, weight_pitch=pitch and 4 * channels * pitch,
    )  # fmt: skip


# Rows, depth, channels and batch: microseconds of the copies and in place.
COPIED = {
    "2 threads: 6585 and 17452": (1024, 1024, 1024),
    "2183 and 4711": (128, 768, 3072),
    "1375 and 3112": (196, 1024, 1024),
    "564 and 1053": (64, 2048, 512),
    "1 thread: 476 and 764": (56, 512, 1024),
    "2583 and 2732": (256, 256, 3136),
    "993 and 1339": (56, 1024, 1024),
}
SMALL = {
    "2 threads: 201 and 79": (4, 1024, 1024),
    "33.3 and 31": (64, 64, 64, 16),
    "36.9 and 19.6": (1, 64, 512, 12),
}
FITS_L2 = {
    "1 thread: 215 and 194": (56, 256, 1024),
    "220 and 184": (56, 1024, 256),
    "472 and 418": (14, 1024, 1024),
}
SPLIT = {
    "499 and 604": (1024, 256, 196),
    "112 and 124": (960, 160, 49),
    "124 and 141": (160, 960, 49),
}
IN_L1 = {
    "110 and 98, in other tiles": (49, 32, 49, 64),
    "66 and 62": (100, 32, 100, 8),
}


@pytest.mark.parametrize("sizes", COPIED.values(), ids=COPIED)
@pytest.mark.parametrize("threads", [1, 2, 8])
def test_large_matrices_that_many_rows_pass_are_copied(sizes: tuple[int, ...], threads: int) -> None:
    assert isinstance(choose_in_place(product(*sizes), EMERALD_RAPIDS, threads), PackedBlocking)


@pytest.mark.parametrize("sizes", SMALL.values(), ids=SMALL)
@pytest.mark.parametrize("machine", [EMERALD_RAPIDS, GENOA], ids=["Emerald Rapids", "Genoa"])
def test_small_matrices_and_those_of_few_rows_are_read_in_place(sizes: tuple[int, ...], machine: Machine) -> None:
    assert not isinstance(choose_in_place(product(*sizes), machine, 2), PackedBlocking)


@pytest.mark.parametrize("sizes", FITS_L2.values(), ids=FITS_L2)
def test_matrices_that_l2_holds_are_read_in_place(sizes: tuple[int, ...]) -> None:
    assert not isinstance(choose_in_place(product(*sizes), EMERALD_RAPIDS, 1), PackedBlocking)


@pytest.mark.parametrize("sizes", SPLIT.values(), ids=SPLIT)
def test_vectors_in_two_lines_each_are_copied(sizes: tuple[int, ...]) -> None:
    rows, depth, channels = sizes
    assert isinstance(choose_in_place(product(*sizes), SKYLAKE, 2), PackedBlocking)
    on_lines = replace(product(rows, depth, channels), weight_pitch=-(-4 * channels // 64) * 64)
    assert not isinstance(choose_in_place(on_lines, SKYLAKE, 2), PackedBlocking)


@pytest.mark.parametrize("sizes", IN_L1.values(), ids=IN_L1)
def test_vectors_in_two_lines_of_l1_are_read_in_place(sizes: tuple[int, ...]) -> None:
    assert not isinstance(choose_in_place(product(*sizes), SKYLAKE, 2), PackedBlocking)


def test_what_was_packed_while_compiling_has_one_form() -> None:
    space = in_place_space(product(1024, 1024, 1024, pitch=None), GENOA, 2)
    assert not any(isinstance(point, PackedBlocking) for point in space)


def test_copies_cost_more_than_panels_that_lie_together() -> None:
    space = in_place_space(product(56, 512, 1024), EMERALD_RAPIDS, 2)
    packed = [point for point in space if isinstance(point, PackedBlocking)]
    assert packed
    assert all(point.cycles > point.blocking.cycles for point in packed)
    assert len({tuple(point.axes().items()) for point in space}) == len(list(space))
