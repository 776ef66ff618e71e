"""Bodies of tiles of rows of which only a call knows how many there are."""

from __future__ import annotations

import pytest

from backends.cpu.costs import FMA_LATENCY, FMA_PER_CYCLE
from backends.cpu.kernels.shared.block_products import RowUnits


@pytest.mark.parametrize("most", [1, 2, 4, 6, 8, 12, 14])
@pytest.mark.parametrize("vectors", [1, 2, 3, 4])
@pytest.mark.parametrize("fours", [False, True])
def test_tiles_of_all_heights_have_a_body(most: int, vectors: int, fours: bool) -> None:
    """A body computes no more than a unit of rows for nothing, but where the multipliers wait for each other."""
    units = RowUnits.of_four(most) if fours else RowUnits(most)
    heights, busy = units.heights(vectors), FMA_LATENCY * FMA_PER_CYCLE / vectors
    assert heights == sorted(set(heights))
    assert most <= heights[-1] <= most + 1
    for rows in range(1, most + 1):
        body = next(height for height in heights if height >= rows)
        assert body - rows < units.unit or body - units.unit < max(units.least, busy)
