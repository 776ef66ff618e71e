"""Where sums of sizes end: at tables that are asked of each call."""

from __future__ import annotations

import numpy as np
import pytest

from fusion.extents import DerivedSize, Extent
from fusion.symbolic.end_sums import within_tables
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.imported_constants import ImportedConstants
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight, TableWindow
from fusion.symbolic.outline import OpenOutline

CACHE, WORDS, BOTH = (Extent(0, 1, (name,)) for name in ("cache", "words", "both"))


@pytest.mark.parametrize(
    ("start", "count", "is_asked"),
    [(Extent(0), BOTH, True), (CACHE, WORDS, True), (Extent(0), CACHE, False), (Extent(7), WORDS, False)],
)
def test_only_a_table_of_what_is_added_up_is_asked_for_the_sum(start: Extent, count: Extent, is_asked: bool) -> None:
    dims = OpenDims(("x", "y"), (("cache",), ("words",)), (DerivedSize("both", (CACHE, WORDS)),))
    near = ({"cache": 2, "words": 3}, {"cache": 5, "words": 7})
    bounds, together = (dict.fromkeys(("cache", "words"), range(1, size)) for size in (40, 20))
    found = FoundModel(dims, near, OpenOutline(()), ImportedConstants(0, {}), near[0], near[0], bounds, together)
    weight = OpenWeight((count,), np.arange(30), TableWindow((start,), (0,)))
    assert within_tables(found, [weight]).bounds == (bounds if is_asked else together)
