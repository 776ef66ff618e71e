"""Dimensions that are open, as symbols: those of one name have one size, and others are told apart."""

from __future__ import annotations

import numpy as np
import pytest

from fusion.declined import Declined
from fusion.extents import Extent
from fusion.signature import TensorSpec
from fusion.symbolic.fit import Fit
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.open_weights import OpenWeight, join_weight

FIT = Fit(({"b": 2, "l": 31}, {"b": 3, "l": 47}))


def dims_of(*specs: tuple[tuple[int | None, ...], tuple[str, ...]]) -> OpenDims:
    found = OpenDims.of([TensorSpec(f"x{place}", shape, "float32", axes) for place, (shape, axes) in enumerate(specs)])
    assert found is not None
    return found


def test_symbols_have_names_that_tensorir_takes() -> None:
    dims = dims_of(((None, 8, None), ("2 b", "", "a.b-c")), ((None,), ()))
    assert dims.symbols == ("_2_b", "a_b_c", "x1_0")
    assert dims.shapes({"_2_b": 1, "a_b_c": 2, "x1_0": 3}) == {"x0": (1, 8, 2), "x1": (3,)}
    assert OpenDims.of([TensorSpec("x", None, "float32")]) is None


def test_sizes_are_those_of_all_inputs_or_none() -> None:
    dims = dims_of(((None, 8), ("b", "")), ((None, None), ("b", "l")))
    assert dims.sizes([(3, 8), (3, 0)]) == {"b": 3, "l": 0}
    for shapes in ([(3, 8), (4, 5)], [(3, 9), (3, 5)], [(3,), (3, 5)], [(3, 8, 1), (3, 5)]):
        assert dims.sizes(shapes) is None


@pytest.mark.parametrize("count", [1, 2, 4])
def test_no_two_symbols_are_seen_at_the_same_sizes(count: int) -> None:
    names = [f"n{place}" for place in range(count)]
    dims = dims_of(*(((None, None), (name, f"inner_{name}")) for name in names))
    choices = list(dims.probes())
    assert choices
    for probes in choices:
        sizes = [size for probe in probes for size in probe.values()]
        assert len(set(sizes)) == 4 * count
        assert all(probe.keys() == set(dims.symbols) for probe in probes)


def test_too_many_symbols_have_no_sizes() -> None:
    assert not list(dims_of(*[((None,), ())] * 40).probes())


def test_a_constant_that_is_the_same_stays_one() -> None:
    array = np.arange(6).reshape(2, 3)
    assert join_weight([array, array.copy()], FIT) is array
    with pytest.raises(Declined, match="other numbers"):
        join_weight([array, array + 1], FIT)


def opened(*values: np.ndarray) -> OpenWeight:
    weight = join_weight(values, FIT)
    assert isinstance(weight, OpenWeight)
    return weight


def test_the_beginning_of_a_table() -> None:
    table = np.random.default_rng(0).standard_normal((64, 4))
    weight = opened(table[:31], table[:47])
    assert weight.shape == (Extent(0, 1, ("l",)), Extent(4))
    assert (weight.grows, weight.symbols) == (True, {"l"})
    np.testing.assert_array_equal(weight.at({"b": 9, "l": 5}), table[:5])
    np.testing.assert_array_equal(weight.to(table).at({"b": 9, "l": 64}), table)
    with pytest.raises(Declined, match="not the beginning"):
        join_weight([table[:31], table[1:48]], FIT)


def test_what_counts_and_what_is_copied() -> None:
    counting = opened(np.arange(31)[None] + 2, np.arange(47)[None] + 2)
    assert not counting.grows
    np.testing.assert_array_equal(counting.at({"b": 1, "l": 100}), np.arange(2, 102)[None])
    np.testing.assert_array_equal(counting.at({"b": 1, "l": 1}), [[2]])
    copied = opened(np.ones((2, 1, 31), np.float32), np.ones((3, 1, 47), np.float32))
    assert (copied.table.size, copied.grows) == (1, False)
    np.testing.assert_array_equal(copied.at({"b": 5, "l": 900}), np.ones((5, 1, 900), np.float32))
    with pytest.raises(Declined, match="another rank"):
        join_weight([np.ones(2), np.ones((3, 1))], FIT)


def test_copies_lie_in_memory_row_by_row() -> None:
    row = np.arange(4, dtype=np.float32).reshape(1, 1, 4)
    copies = opened(np.repeat(row, 2, 0), np.repeat(row, 3, 0)).at({"b": 5, "l": 1})
    np.testing.assert_array_equal(copies, np.repeat(row, 5, 0))
    assert copies.flags.c_contiguous


def test_rows_that_come_again_and_again_are_one_period() -> None:
    """Each image has the same masks, as those of shifted windows."""
    masks = np.random.default_rng(0).standard_normal((4, 1, 3)).astype(np.float32)
    weight = opened(*(np.tile(masks, (count, 1, 1)) for count in (2, 3)))
    assert (weight.shape[0], weight.table.shape, weight.grows) == (Extent(0, 4, ("b",)), masks.shape, False)
    many = np.tile(masks, (9, 1, 1))
    np.testing.assert_array_equal(weight.at({"b": 9, "l": 1}), many)
    assert weight.can_be(many, {"b": 9, "l": 1})
    assert weight.is_prefix
    assert not opened(*(np.tile(masks[None], (1, 1, 1, size)) for size in (31, 47))).is_prefix
    many[-1] += 1
    assert not weight.can_be(many, {"b": 9, "l": 1})
    assert not weight.can_be(many[:-4], {"b": 9, "l": 1})


def test_constants_are_told_from_others_that_begin_alike() -> None:
    table = np.random.default_rng(0).standard_normal((64, 4))
    weight = opened(table[:31], table[:47])
    assert weight.can_be(table[:20], {"b": 1, "l": 20})
    assert weight.can_be(table, {"b": 1, "l": 64})
    assert not weight.can_be(table[::-1], {"b": 1, "l": 64})
    counting = opened(np.arange(31), np.arange(47))
    assert counting.can_be(np.arange(90), {"b": 1, "l": 90})
    assert not counting.can_be(np.minimum(np.arange(90), 50), {"b": 1, "l": 90})
    quarters = opened(np.arange(2) // 4, np.arange(3) // 4)
    assert quarters.can_be(np.arange(4) // 4, {"b": 4, "l": 1})
    assert not quarters.can_be(np.arange(8) // 4, {"b": 8, "l": 1})
