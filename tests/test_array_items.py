"""TVM's arrays have the items that indices find."""

from __future__ import annotations

import tvm_ffi
from hypothesis import given
from hypothesis import strategies as st

import fusion.frontends  # noqa: F401  # which installs it
from fusion import array_items

VALUES = st.one_of(st.integers(-(2**63), 2**63 - 1), st.text(), st.none(), st.booleans(), st.lists(st.integers(0, 9)))


@given(st.lists(VALUES, max_size=9))
def test_items_are_those_that_indices_find(values: list[object]) -> None:
    array = tvm_ffi.Array(values)
    wanted = [array[place] for place in range(len(array))]
    assert list(array) == wanted
    assert list(map(type, array)) == list(map(type, wanted))
    assert list(reversed(array)) == wanted[::-1]


def test_an_iteration_may_end_early_and_begin_again() -> None:
    array = tvm_ffi.Array([3, 1, 2])
    first = iter(array)
    assert [next(first), *iter(array), next(first)] == [3, 3, 1, 2, 1]


def test_arrays_iterate_so() -> None:
    assert tvm_ffi.Array.__iter__ is array_items.items
