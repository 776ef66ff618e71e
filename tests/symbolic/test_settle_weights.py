"""Which imports tell what a constant is at other sizes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest

from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import join_weight
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import Count, OpenWeight
from fusion.symbolic.settle_weights import Constants, Imports, settle

NEAR = ({"b": 2, "l": 31}, {"b": 3, "l": 47})
BOUNDS = {"b": range(1, 4097), "l": range(1, 513)}
_SHAPE = (Extent(0, 1, ("b",)), Extent(0, 1, ("l",)))
COUNTED = OpenWeight(_SHAPE, np.zeros(0, np.float32), Count(Extent(0), (_SHAPE[1], Extent(1)), _SHAPE))


def _rivals() -> tuple[OpenWeight, ...]:
    known = tuple(Extent(0, 1, (symbol,)) for symbol in NEAR[0])
    found = join_weight([_mask(sizes) for sizes in NEAR], Fit(NEAR, known))
    assert isinstance(found, tuple)
    return found


def _mask(sizes: Sizes) -> np.ndarray:
    return np.ones((sizes["b"], 1, sizes["l"]), np.float32)


def _settled(constants: Constants, rivals: Sequence[OpenWeight] = (), beside: Sizes = NEAR[0]) -> OpenWeight:
    dims = OpenDims(("x",), (("b", "l"),))
    return settle(rivals or _rivals(), [Imports(constants, dims, NEAR, beside=beside, lowest=beside, bounds=BOUNDS)])


def _asked(missing: Sequence[Mapping[str, int]] = (), beside: Sizes = NEAR[0]) -> list[Mapping[str, int]]:
    """Return the sizes that a constant is asked for beside `NEAR`; the model is another one at those that are
    `missing`."""
    asked: list[Mapping[str, int]] = []

    def constants(sizes: Sizes) -> list[np.ndarray] | None:
        asked.append(dict(sizes))
        return None if sizes in missing else [_mask(sizes)]

    _settled(constants, beside=beside)
    return [sizes for sizes in asked if sizes not in NEAR]


def test_those_that_told_the_bounds_and_the_corners_are_enough() -> None:
    large = [{"b": 4096, "l": 31}, {"b": 2, "l": 512}]
    assert _asked() == [*large, {"b": 1, "l": 512}, {"b": 4096, "l": 1}, {"b": 1, "l": 1}]


def test_no_others_are_asked_for_where_those_that_told_the_bounds_were_as_small_as_can_be() -> None:
    asked = _asked(beside={"b": 1, "l": 1})
    assert [sizes for place, sizes in enumerate(asked) if sizes not in asked[:place]] == [
        {"b": 4096, "l": 1}, {"b": 1, "l": 512}, {"b": 1, "l": 1}
    ]  # fmt: skip


def test_where_the_model_is_another_one_smaller_others_tell() -> None:
    missing: list[Mapping[str, int]] = [{"b": 2, "l": 512}, {"b": 4096, "l": 1}]
    asked = _asked(missing)
    assert asked[1:3] == [{"b": 2, "l": 512}, {"b": 1, "l": 512}]
    assert asked[-3:] == [{"b": 4096, "l": 1}, {"b": 2, "l": 1}, {"b": 1, "l": 1}]


def _is_one_alone(sizes: Sizes) -> bool:
    return sizes["b"] == 1 < sizes["l"]


@pytest.mark.parametrize("is_other", [lambda sizes: sizes == {"b": 1, "l": 1}, _is_one_alone])
@pytest.mark.parametrize("rivals", [_rivals(), (COUNTED,)], ids=["mask", "count"])
def test_a_constant_that_is_another_one_at_a_corner_is_none_of_the_rivals(
    is_other: Callable[[Sizes], bool], rivals: Sequence[OpenWeight]
) -> None:
    def constants(sizes: Sizes) -> list[np.ndarray]:
        return [rivals[0].at(sizes) + np.float32(5 * is_other(sizes))]

    with pytest.raises(Declined, match="another one"):
        _settled(constants, rivals)


def test_a_count_of_which_nothing_is_known_is_what_passes_saw() -> None:
    assert _settled(lambda _: None, (COUNTED,)) is COUNTED
