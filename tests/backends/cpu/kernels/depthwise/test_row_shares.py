"""Threads share the rows of depthwise windows evenly, whatever their number."""

from __future__ import annotations

import itertools

import pytest
from tvm.sym import Analyzer

from backends.cpu.kernels.depthwise.emit_open import RowShares
from backends.tensorir.emit import Expr, int64


def number(expr: Expr) -> int:
    return int(Analyzer().simplify(expr))


@pytest.mark.parametrize("threads", [1, 2, 3])
@pytest.mark.parametrize(("images", "rows"), [(1, 1), (1, 3), (3, 3), (3, 12), (5, 7)])
def test_threads_have_even_shares_with_each_piece_once(images: int, rows: int, threads: int) -> None:
    """9 rows are 18 halves for two threads, 36 are not cut."""
    shared, parts = RowShares(int64(images), int64(rows), 4, threads), 4
    pieces = images * rows * number(shared.cuts)
    found = [piece(shared, index) for index in range(pieces)]
    each = itertools.product(range(images), range(rows), range(parts))
    assert sorted((*line, part) for line, start, stop in found for part in range(start, stop)) == [*each]
    assert pieces % threads == 0 or pieces >= 8 * threads


def piece(rows: RowShares, index: int) -> tuple[tuple[int, int], int, int]:
    """Return image and row of a piece, and its parts of the channels."""
    (image, y), start, stop = rows.piece(index)
    return (number(image), number(y)), number(start), number(stop)
