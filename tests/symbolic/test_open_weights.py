"""Constants that depend on sizes, found from what they are at two of them, and made at others."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.symbolic.fit import Fit
from fusion.symbolic.join_weights import grown, join_weight
from fusion.symbolic.open_weights import OpenWeight

Make = Callable[[int, int, int], np.ndarray]
"""(batch, past, length) -> the constant."""


def at(batch: int, past: int, length: int) -> Sizes:
    return {"b": batch, "p": past, "l": length, "all": past + length}


NEAR = (at(2, 11, 31), at(3, 13, 47))
KNOWN = tuple(Extent(0, 1, (symbol,)) for symbol in NEAR[0])
SEEN = ((2, 0, 60), (2, 30, 5))
SIZES = [(5, 0, 2), (1, 0, 60), (1, 1, 1), (2, 5, 7), (3, 20, 2), (1, 30, 1), (4, 11, 0)]
TABLE = np.random.default_rng(0).standard_normal((64, 4)).astype(np.float32)


def rivals(make: Make) -> tuple[OpenWeight, ...]:
    found = join_weight([make(sizes["b"], sizes["p"], sizes["l"]) for sizes in NEAR], Fit(NEAR, KNOWN))
    assert isinstance(found, tuple)
    return found


def settled(make: Make) -> OpenWeight:
    """Return the first that is the same at other sizes too."""
    for weight in rivals(make):
        found: OpenWeight | None = weight
        for sizes in SEEN:
            found = found and grown(found, make(*sizes), at(*sizes))
        if found:
            return found
    raise AssertionError("none is")


MAKES: dict[str, Make] = {
    "last": lambda batch, past, length: np.array(length - 1),
    "first and last": lambda batch, past, length: np.array([0, length - 1, 0, past]),
    "how many": lambda batch, past, length: np.array([length], np.float32),
    "correction": lambda batch, past, length: np.full((1, 1), (past + length) / (past + length - 1.0), np.float32),
    "correction of one number": lambda batch, past, length: np.array(
        (past + length) / (past + length - 1.0), np.float32
    ),
    "positions": lambda batch, past, length: np.arange(past, past + length)[None],
    "places in a mask": lambda batch, past, length: (
        np.arange(batch)[:, None, None, None] * (past + length) + np.arange(length)
    ),
    "table": lambda batch, past, length: TABLE[None, :length],
    "table behind a cache": lambda batch, past, length: np.repeat(TABLE[None, past : past + length], batch, 0),
    "copies": lambda batch, past, length: np.ones((batch, 1, length), np.float32),
    "causal": lambda batch, past, length: np.tril(np.ones((length, length), bool)),
    "causal behind a cache": lambda batch, past, length: np.where(
        np.arange(past + length)[None] <= np.arange(length)[:, None] + past, 0.0, -1e9
    )[None, None],
    "distances": lambda batch, past, length: np.clip(np.arange(length)[None] - np.arange(length)[:, None], -8, 8),
}


@pytest.mark.parametrize("name", MAKES)
def test_it_is_the_same_at_other_sizes(name: str) -> None:
    weight = settled(MAKES[name])
    for sizes in SIZES:
        wanted, found = MAKES[name](*sizes), weight.at(at(*sizes))
        assert weight.covers(at(*sizes))
        assert isinstance(found, np.ndarray)
        assert (found.dtype, found.flags.c_contiguous) == (wanted.dtype, True)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("name", "elements"),
    [("causal", 119), ("distances", 119), ("copies", 1), ("positions", 0), ("places in a mask", 0)],
)
def test_it_takes_little_memory(name: str, elements: int) -> None:
    assert settled(MAKES[name]).table.size <= elements


def test_the_table_ends_somewhere() -> None:
    weight = settled(MAKES["table behind a cache"])
    assert weight.grows
    assert not weight.covers(at(1, 30, 31))
    np.testing.assert_array_equal(weight.at(at(1, 30, 30)), TABLE[None, 30:60])


def test_other_numbers_further_on_make_it_another_one() -> None:
    (weight,) = rivals(MAKES["table behind a cache"])
    assert grown(weight, TABLE[None, 12:17], at(1, 11, 5)) is None
    assert grown(weight, TABLE[None, 11:16], at(1, 11, 5)) is not None


def test_an_import_may_leave_an_axis_of_one_out() -> None:
    weight = settled(MAKES["table behind a cache"])
    assert grown(weight, TABLE[40], at(1, 40, 1)) is not None
    assert grown(weight, TABLE[41], at(1, 40, 1)) is None
    assert grown(weight, TABLE[40:42], at(1, 40, 1)) is None


def test_a_constant_that_is_the_same_stays_one() -> None:
    array = np.arange(6).reshape(2, 3)
    assert join_weight([array, array.copy()], Fit(NEAR, KNOWN)) is array


@pytest.mark.parametrize(
    ("values", "reason"),
    [
        ((TABLE, TABLE + 1), "no part of a table"),
        ((TABLE[:31], TABLE[:47][::-1]), "no part of a table"),
        ((np.ones(2), np.ones((3, 1))), "another rank"),
        ((np.array([31, 2**64 - 1], np.uint64), np.array([47, 2**64 - 1], np.uint64)), "no part of a table"),
    ],
)
def test_others_are_declined(values: tuple[np.ndarray, ...], reason: str) -> None:
    with pytest.raises(Declined, match=reason):
        join_weight(values, Fit(NEAR, KNOWN))


def test_rows_that_come_again_and_again_are_one_period() -> None:
    """Each image has the same masks, as those of shifted windows."""
    masks = np.random.default_rng(0).standard_normal((4, 1, 3)).astype(np.float32)
    (weight,) = rivals(lambda batch, past, length: np.tile(masks, (batch, 1, 1)))
    assert (weight.shape[0], weight.table.shape, weight.grows) == (Extent(0, 4, ("b",)), masks.shape, False)
    many = np.tile(masks, (9, 1, 1))
    np.testing.assert_array_equal(weight.at(at(9, 1, 1)), many)
    assert grown(weight, many, at(9, 1, 1)) is not None
    assert weight.is_prefix
    assert not settled(lambda batch, past, length: np.tile(masks[None], (1, 1, 1, length))).is_prefix
    many[-1] += 1
    assert grown(weight, many, at(9, 1, 1)) is None
    assert grown(weight, many[:-4], at(9, 1, 1)) is None


@pytest.mark.parametrize(("mode", "pads"), [("reflect", (3, 1)), ("edge", (3, 2)), ("wrap", (2, 4))])
def test_indices_beyond_the_edges_of_a_picture(mode: str, pads: tuple[int, int]) -> None:
    def make(batch: int, past: int, length: int) -> np.ndarray:
        return np.pad(np.arange(length), pads, mode)  # type: ignore[call-overload, no-any-return]

    (weight,) = rivals(make)
    assert not weight.grows
    for length in (4, 5, 8, 64, 1000):
        sizes = at(2, 0, length)
        np.testing.assert_array_equal(weight.at(sizes), make(2, 0, length))
        assert grown(weight, make(2, 0, length), sizes) is weight
        assert grown(weight, make(2, 0, length)[::-1], sizes) is None
    assert weight.covers(at(1, 1, 1))


def test_what_counts_slowly_is_no_copy() -> None:
    quarters = rivals(lambda batch, past, length: np.arange(batch) // 4)
    assert [grown(weight, np.arange(8) // 4, at(8, 1, 1)) for weight in quarters] == [None] * len(quarters)
