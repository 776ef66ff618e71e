"""Tasks that are cut at the call leave no thread without work for long."""

from __future__ import annotations

import pytest
from tvm import tirx
from tvm.sym import Analyzer

from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_contraction import OpenBlocking
from backends.cpu.kernels.shared.open_images import OpenGrid, _even, _place_of
from backends.tensorir.emit import Expr, int64
from tests.backends.cpu.kernels.drawn import MACHINE


def number(expr: Expr) -> int:
    return int(Analyzer().simplify(expr))


@pytest.mark.parametrize("threads", [2, 3, 8])
def test_many_rows_are_cut_into_whole_turns(threads: int) -> None:
    """11,424 rows were five chunks for two threads, one of which had three."""
    sizes = Extents(
        outer=1, groups=1, height=64, width=1, channels=240, taps=(), depth=128, lanes=16, input_bytes=4 * 64 * 128,
    )  # fmt: skip
    blocking = OpenBlocking.of([sizes], sizes, MACHINE, threads)
    for rows in (8192, 8193, 11_424, 16_383, 16_384, 100_000):
        chunks = number(blocking.row_chunks(int64(rows))) * number(blocking.panel_chunks(int64(rows)))
        assert chunks % threads == 0, rows


@pytest.mark.parametrize(
    ("images", "rows", "parts", "threads", "cuts"),
    [
        (3, 3, 15, 2, 2), (3, 12, 15, 2, 2), (4, 12, 15, 2, 1), (1, 3, 30, 2, 2), (1, 40, 30, 2, 1), (17, 12, 15, 2, 1),
        (3, 12, 1, 2, 1),
    ],
)
def test_channels_are_cut_where_rows_are_no_even_shares(
    images: int, rows: int, parts: int, threads: int, cuts: int
) -> None:
    grid = OpenGrid.of(int64(images), int64(rows), 1, parts, machine=MACHINE, threads=threads)
    bands = -(-rows // number(grid.most_rows))
    assert number(grid._cuts(int64(images * bands), int64(-(-rows // bands)))) == cuts


@pytest.mark.parametrize(
    ("images", "rows", "threads", "most"),
    [(3, 12, 2, 6), (5, 24, 2, 12), (4, 12, 2, 12), (3, 1, 2, 1), (3, 12, 24, 2), (1, 40, 2, 20), (5, 9, 3, 3)],
)
def test_images_that_are_no_even_shares_are_cut_into_bands(images: int, rows: int, threads: int, most: int) -> None:
    """3 images were cut by channels, or not at all: two threads had windows of them 1.3 to 1.75 times as long."""
    grid = OpenGrid.of(int64(images), int64(rows), 1, 1, machine=MACHINE, threads=threads)
    bands = -(-rows // number(grid.most_rows))
    assert number(_even(int64(images), int64(rows), grid.most_rows, int64(bands), threads)) == most


def test_threads_have_all_uneven_bands_of_their_channels() -> None:
    """3 rows of 309 pixels are bands of one and two rows: a thread had both halves of the channels of one of these."""
    heights, every, cuts = (1, 2), 2, 2
    places = [tuple(map(number, _place_of(int64(task), int64(every)))) for task in range(every * cuts)]
    assert len(set(places)) == every * cuts
    shares = [sum(heights[band] for band, _ in places[first : first + every]) for first in (0, every)]
    assert shares == [3, 3]


def test_nothing_is_cut_for_one_thread() -> None:
    grid = OpenGrid.of(tirx.Var("images", "int64"), int64(3), 1, 30, machine=MACHINE, threads=1)
    assert number(grid._cuts(int64(3), int64(3))) == 1
