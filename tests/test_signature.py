"""Shapes of inputs that follow from those of others."""

from __future__ import annotations

import pytest

from fusion.signature import TensorSpec, complete_shapes

INPUTS = (
    TensorSpec("x", (None, None, 8), "float32", ("batch", "length", "")),
    TensorSpec("mask", (None, None), "int64", ("batch", "length")),
    TensorSpec("past", (None, 4), "float32", ("past", "")),
    TensorSpec("flag", (None,), "bool"),
    TensorSpec("any", None, "float32"),
)


@pytest.mark.parametrize(
    ("given", "followed"),
    [
        ({"x": [2, 5, 8]}, {"mask": (2, 5)}),
        ({"mask": (2, 5)}, {"x": (2, 5, 8)}),
        ({"x": (2, 5, 8), "mask": (1, 5)}, {}),
        ({"past": (3, 4)}, {}),
        ({}, {}),
    ],
)
def test_open_dimensions_of_one_name_have_one_size(
    given: dict[str, list[int]], followed: dict[str, tuple[int, ...]]
) -> None:
    assert complete_shapes(INPUTS, given) == {name: tuple(shape) for name, shape in given.items()} | followed


def test_a_name_with_two_sizes_says_nothing_of_a_third_input() -> None:
    third = TensorSpec("third", (None, 2), "float32", ("batch", ""))
    given = {"x": (2, 5, 8), "mask": (1, 5)}
    assert complete_shapes((*INPUTS, third), given) == given


@pytest.mark.parametrize(
    ("shape", "why"),
    [
        ((2, 8), "it has 3 dimensions, ('?', '?', 8), and 2 are given"),
        ((), "it has 3 dimensions, ('?', '?', 8), and 0 are given"),
        ((2, 5, 9), "it is ('?', '?', 8): dimension 2 is 8, not 9"),
    ],
)
def test_a_shape_that_is_not_allowed_is_told_from_the_one_that_is(shape: tuple[int, ...], why: str) -> None:
    assert not INPUTS[0].allows(shape)
    assert INPUTS[0].misfit(shape) == why
