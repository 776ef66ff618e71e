"""Which sizes a model takes that does not take all, found from what it is at some of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fusion.errors import ShapeError
from fusion.extents import DerivedSize, Extent, Sizes
from fusion.symbolic.narrow import Narrowing
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OperatorLine

DIMS = OpenDims(("x",), (("batch", 3, "height", "width"),))
FIRST = {"batch": 1, "height": 96, "width": 128}


def line(*numbers: int) -> tuple[OperatorLine, ...]:
    return (OperatorLine("op", "#", numbers),)


@pytest.mark.parametrize("step", [2, 4, 16, 32])
def test_multiples(step: int) -> None:
    def neck(sizes: Sizes) -> tuple[OperatorLine, ...]:
        if sizes["height"] % step or sizes["width"] % 8:
            raise ShapeError("the shapes of Concat contradict each other")
        return line(sizes["height"] // step, sizes["width"] // 8)

    narrowed = Narrowing(neck, FIRST).by_import(DIMS)
    assert narrowed.steps == {"height": range(step, 4097, step), "width": range(8, 4097, 8)}
    assert narrowed.symbols == DIMS.symbols


def test_one_size() -> None:
    """A stem halves other heights to as many rows."""

    def reader(sizes: Sizes) -> tuple[OperatorLine, ...]:
        if sizes["height"] // 32 != 3:
            raise ShapeError("the shapes of Squeeze contradict each other")
        return line(sizes["width"])

    narrowed = Narrowing(reader, FIRST).by_import(DIMS)
    assert narrowed.dims == (("batch", 3, 96, "width"),)
    assert not narrowed.steps


@pytest.mark.parametrize(("first", "taken"), [(96, range(4, 4097, 4)), (97, range(1, 4097, 4))])
def test_sizes_of_which_a_division_leaves_as_much(first: int, taken: range) -> None:
    def padded(sizes: Sizes) -> tuple[OperatorLine, ...]:
        height = sizes["height"]
        return line(height, -(-height // 4), -height % 4, sizes["batch"] * height, height * height)

    narrowing = Narrowing(padded, {**FIRST, "height": first})
    assert narrowing.by_import(DIMS) == DIMS
    assert narrowing.by_outline(DIMS).steps == {"height": taken}


def test_a_model_that_is_another_one_at_each_size_has_one() -> None:
    def unrolled(sizes: Sizes) -> tuple[OperatorLine, ...]:
        return line(sizes["batch"]) * sizes["width"]

    assert Narrowing(unrolled, FIRST).by_outline(DIMS).dims == (("batch", 3, "height", 128),)


def test_sizes_that_are_tried_are_taken() -> None:
    dims = DIMS.every("height", 32, 97).every("width", 2, 128)
    assert dims.steps == {"height": range(1, 4097, 32), "width": range(2, 4097, 2)}
    for place in range(12):
        sizes = dims.spread(place)
        assert sizes["height"] in dims.taken("height")
        assert sizes["width"] in dims.taken("width")
    assert {dims.spread(place)["height"] // 32 % 4 for place in range(4)} == {0, 1, 2, 3}
    both = DIMS.every("height", 32, 96).every("width", 32, 96)
    assert len({both.spread(place)["height"] - both.spread(place)["width"] for place in range(4)}) > 2
    for probes in dims.probes():
        assert all(sizes[name] in dims.taken(name) for sizes in probes for name in dims.symbols)
    assert (dims.at_least("height", 32), dims.at_least("height", 33), dims.at_least("height", 34)) == (33, 33, 65)
    assert (dims.at_most("height", 32), dims.at_most("height", 33), dims.at_most("height", 5000)) == (1, 33, 4065)
    assert dims.fixed("height", 97).steps.keys() == {"width"}


def test_what_follows_from_a_size_that_is_fixed_is_a_number_too() -> None:
    """A sum of two sizes, as long as the mask of a decoder, of which one is a number: it was still asked for."""
    both = DerivedSize("both", (Extent(0, 1, ("height",)), Extent(1, 1, ("width",))))
    half = DerivedSize("half", (Extent(0, 1, ("both",)),), 2)
    dims = replace(DIMS, inputs=(*DIMS.inputs, "mask"), dims=(*DIMS.dims, ("both",)), derived=(both, half))
    assert "both" not in dims.fixed("height", 97).symbols
    assert dims.fixed("height", 97).all_sizes({"width": 10})["half"] == 54
    alone = dims.fixed("height", 97).fixed("width", 10)
    assert (alone.derived, alone.dims[-1]) == ((), (108,))


def test_what_is_divided_follows_from_a_quotient_without_a_rest() -> None:
    def half(of: str, offset: int = 0) -> DerivedSize:
        return DerivedSize(f"{of}_by_2", (Extent(offset, 1, (of,)),), 2)

    derived = (half("height", 1), half("width"), half("width_by_2"), half("width_by_2_by_2"))
    dims = replace(DIMS.every("height", 2, 33).every("width", 4, 48), derived=derived)
    assert [str(size) for size in dims.relations if size not in derived] == [
        "height = 2 * height_by_2 - 1", "width = 2 * width_by_2", "width_by_2 = 2 * width_by_2_by_2",
    ]  # fmt: skip
    assert not set(replace(DIMS, derived=derived).relations) - set(derived)
