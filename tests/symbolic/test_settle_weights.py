"""Which imports tell what a constant is at other sizes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from fusion.extents import Extent, Sizes
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import join_weight
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight
from fusion.symbolic.settle_weights import Constants, Imports

NEAR = ({"b": 2, "l": 31}, {"b": 3, "l": 47})
BOUNDS = {"b": range(1, 4097), "l": range(1, 513)}


def _rivals() -> tuple[OpenWeight, ...]:
    known = tuple(Extent(0, 1, (symbol,)) for symbol in NEAR[0])
    found = join_weight([_mask(sizes) for sizes in NEAR], Fit(NEAR, known))
    assert isinstance(found, tuple)
    return found


def _mask(sizes: Sizes) -> np.ndarray:
    return np.ones((sizes["b"], 1, sizes["l"]), np.float32)


def _settled(constants: Constants) -> OpenWeight | None:
    dims = OpenDims(("x",), (("b", "l"),))
    return Imports(constants, dims, near=NEAR, bounds=BOUNDS).settled(_rivals())


def _asked(missing: Sequence[Mapping[str, int]] = ()) -> list[Mapping[str, int]]:
    """Return the sizes that a constant is asked for beside `NEAR`; the model is another one at those that are
    `missing`."""
    asked: list[Mapping[str, int]] = []

    def constants(sizes: Sizes) -> list[np.ndarray] | None:
        asked.append(dict(sizes))
        return None if sizes in missing else [_mask(sizes)]

    assert _settled(constants) is not None
    return [sizes for sizes in asked if sizes not in NEAR]


def test_those_that_told_the_bounds_are_enough() -> None:
    assert _asked() == [{"b": 4096, "l": 31}, {"b": 2, "l": 512}, {"b": 1, "l": 1}]


def test_where_the_model_is_another_one_smaller_others_tell() -> None:
    asked = _asked(missing=[{"b": 2, "l": 512}])
    assert asked == [{"b": 4096, "l": 31}, {"b": 2, "l": 512}, {"b": 1, "l": 512}, {"b": 1, "l": 1}]


def test_a_constant_that_is_another_one_where_all_are_small_is_none_of_the_rivals() -> None:
    assert _settled(lambda sizes: [_mask(sizes) * (2 if sizes == {"b": 1, "l": 1} else 1)]) is None
