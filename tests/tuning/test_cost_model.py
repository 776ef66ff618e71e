"""A cost model learns what the estimates lack, and knows nothing of what it has not seen."""

from __future__ import annotations

import numpy as np
import pytest

from tuning.cost_model import CostModel, MeasuredSpace


def _space(seed: int, penalty: float) -> MeasuredSpace:
    """Return a kernel of which points with odd tiles are slower by `penalty` than their estimates say."""
    draw = np.random.default_rng(seed)
    size, estimates = draw.uniform(10, 20), draw.uniform(0, 1, 40)
    tiles = np.concatenate([[0], draw.integers(0, 8, 39)])
    features = [
        {"size": size, "over the default": float(estimate - estimates[0]), "tile": float(tile), "odd": float(tile % 2)}
        for estimate, tile in zip(estimates, tiles, strict=True)
    ]
    return MeasuredSpace(features, [float(each) for each in np.exp(size + estimates + penalty * (tiles % 2))])


def test_it_finds_what_the_estimates_lack() -> None:
    model = CostModel.fit([_space(seed, penalty=1.5) for seed in range(40)])
    for seed in range(100, 110):
        unseen = _space(seed, penalty=1.5)
        by_estimate = min(range(40), key=lambda place: unseen.features[place]["over the default"])
        ratios = model.ratios(unseen.features)
        by_model = min(range(40), key=ratios.__getitem__)
        assert unseen.seconds[by_model] <= 1.15 * min(unseen.seconds)
        assert unseen.features[by_model]["odd"] == 0
        if unseen.features[by_estimate]["odd"]:
            assert unseen.seconds[by_model] < unseen.seconds[by_estimate]


def test_ratios_are_of_the_default() -> None:
    model = CostModel.fit([_space(seed, penalty=0.0) for seed in range(40)])
    unseen = _space(200, penalty=0.0)
    measured = np.log(np.array(unseen.seconds) / unseen.seconds[0])
    assert np.abs(np.log(model.ratios(unseen.features)) - measured).mean() < 0.1


def test_a_feature_that_a_kernel_lacks_is_no_error() -> None:
    model = CostModel.fit([_space(seed, penalty=1.0) for seed in range(10)])
    assert model.ratios([{"size": 12.0}, {"size": 12.0, "something new": 1.0}]) == pytest.approx(
        [model.ratios([{"size": 12.0}])[0]] * 2
    )
