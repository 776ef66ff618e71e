"""Memory that values share: none lies where another does that is needed in the same step."""

from __future__ import annotations

import numpy as np
import pytest

from backends.onednn.arena import Lifetime, place_all


@pytest.mark.parametrize("seed", range(50))
def test_what_is_needed_together_lies_apart(seed: int) -> None:
    rng = np.random.default_rng(seed)
    firsts, lengths = rng.integers(0, 12, 20), rng.integers(0, 5, 20)
    lifetimes = [
        Lifetime(int(size), int(first), int(first + length))
        for size, first, length in zip(rng.integers(0, 3000, 20), firsts, lengths, strict=True)
    ]
    offsets, size = place_all(lifetimes)
    assert all(offset % 64 == 0 for offset in offsets)
    for at, one in enumerate(lifetimes):
        assert offsets[at] + one.size <= size
        for other in range(at):
            ends = offsets[at] + one.size <= offsets[other] or offsets[other] + lifetimes[other].size <= offsets[at]
            assert ends or not one.meets(lifetimes[other]), f"seed {seed}"


def test_one_piece_serves_values_one_after_the_other() -> None:
    assert place_all([Lifetime(128, step, step + 1) for step in range(9)])[1] == 256
    assert place_all([]) == ([], 0)
