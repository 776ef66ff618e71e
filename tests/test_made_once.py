"""What forms of one model make of its weights is made once while they are lowered together."""

from __future__ import annotations

import numpy as np

from fusion.made_once import making_once, once


def double(weight: np.ndarray, factor: int = 2) -> np.ndarray:
    return weight * factor


def test_the_same_memory_is_asked_once() -> None:
    weight = np.arange(6.0).reshape(2, 3)
    with making_once():
        first = once(double, weight)
        assert once(double, weight[:]) is first
        others = [once(double, other) for other in (weight.copy(), weight.T, weight[:1])]
        assert all(other is not first for other in others)
        assert np.array_equal(others[1], 2 * weight.T)
        assert np.array_equal(once(double, weight, 3), 3 * weight)
    assert once(double, weight) is not first


def test_memory_is_no_other_weights_meanwhile() -> None:
    with making_once():
        for value in range(100):
            made = once(double, np.full(1000, float(value)))
            assert made[0] == 2 * value
