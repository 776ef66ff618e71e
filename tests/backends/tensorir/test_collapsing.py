"""Tests of axes that are walked as one."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from tvm import tirx
from tvm.ir import Var

from backends.tensorir.accesses import Access, Accesses
from backends.tensorir.collapsing import collapse_runs
from backends.tensorir.extents import Extent
from backends.tensorir.stages import Axis

CHANNELS = 24
HEIGHT, WIDTH = Var("height", "int64"), Var("width", "int64")
ROWS, COLUMNS = Var("row", "int64"), Var("column", "int64")


def _access(steps: Mapping[Var, Extent]) -> Access:
    return Access(tirx.decl_buffer((1,), "float32", "buffer"), (), steps)


@pytest.mark.parametrize("height", [6, HEIGHT])
@pytest.mark.parametrize("width", [40, WIDTH])
def test_a_sum_over_rows_and_columns_walks_on(height: Extent, width: Extent) -> None:
    """What a mean over an image stores stands still along both: one loop, and no six of them that LLVM unrolls."""
    rows, columns = Axis(ROWS, height), Axis(COLUMNS, width)
    image = _access({ROWS: width * CHANNELS, COLUMNS: CHANNELS})
    total = _access({ROWS: 0, COLUMNS: 0})
    assert collapse_runs([rows, columns], Accesses(total, (image,), frozenset())) == [(rows, columns)]


@pytest.mark.parametrize("width", [40, WIDTH])
@pytest.mark.parametrize("steps", [{ROWS: CHANNELS, COLUMNS: 0}, {ROWS: 0, COLUMNS: CHANNELS}])
def test_what_stands_still_along_one_of_them_does_not(width: Extent, steps: Mapping[Var, Extent]) -> None:
    rows, columns = Axis(ROWS, 6), Axis(COLUMNS, width)
    image = _access({ROWS: width * CHANNELS, COLUMNS: CHANNELS})
    assert collapse_runs([rows, columns], Accesses(_access(steps), (image,), frozenset())) == [(rows,), (columns,)]
