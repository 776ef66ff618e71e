"""Regrets are of what was measured, and models are asked about kernels that they have not seen."""

from __future__ import annotations

import numpy as np
import pytest

from bench.tuning.regret import Judged, by_machine_models, by_models
from tuning.cost_model import MeasuredSpace


def test_regret_is_of_the_first_points_of_an_order() -> None:
    kernel = Judged("k", "f", [10, 20, 5], MeasuredSpace([{}, {}, {}], [3.0, 2.0, 4.0]))
    assert kernel.regret(kernel.by_tables, 1) == pytest.approx(0.5)
    assert kernel.regret(kernel.by_tables, 2) == pytest.approx(0.5)  # the default, then the least estimate
    assert kernel.regret(kernel.by_tables, 3) == 0
    assert kernel.regret([3, 1, 2], 1) == 0


def test_a_model_never_learns_the_kernel_that_it_is_asked_about() -> None:
    """Each kernel's best point is at random: who has seen it could know it, others cannot."""
    draw = np.random.default_rng(1)
    kernels = []
    for number in range(40):
        features = [{"kernel": float(number), "point": float(place)} for place in range(12)]
        seconds = draw.permutation(np.geomspace(1, 3, 12))
        kernels.append(Judged(f"k{number}", "f", [1.0] * 12, MeasuredSpace(features, [float(s) for s in seconds])))
    regrets = [k.regret(order, 1) for k, order in zip(kernels, by_models(kernels, families=False), strict=True)]
    assert np.mean(regrets) > 0.3


def test_a_model_of_the_machine_takes_what_it_is_sure_of() -> None:
    """Points of the kind "b" take three quarters of the time of the default, which the tables do not know."""
    draw, kernels = np.random.default_rng(2), []
    for number in range(24):
        kinds = [0, *draw.integers(0, 2, 9), 1]
        seconds = [(1.0 if kind else 1.3) * float(np.exp(draw.normal(0, 0.01))) for kind in kinds]
        features = [{"kernel": float(number), "b": float(kind)} for kind in kinds]
        kernels.append(Judged(f"k{number}", "f", [1.0 + kind for kind in kinds], MeasuredSpace(features, seconds)))
    regrets = [k.regret(order, 1) for k, order in zip(kernels, by_machine_models(kernels), strict=True)]
    assert np.mean(regrets) < 0.05
    assert np.argmin(by_machine_models(kernels[:3])[0]) == 0, "two others are too few to say that it gains"


def test_kernels_of_a_family_that_nobody_knows_keep_their_default() -> None:
    space = MeasuredSpace([{"a": 0.0}, {"a": 1.0}], [2.0, 1.0])
    kernels = [Judged("one", "seldom", [1, 2], space), *(Judged(f"k{n}", "often", [1, 2], space) for n in range(20))]
    orders = by_models(kernels, families=True)
    assert orders[0] == kernels[0].by_tables
    assert all(order[1] < order[0] for order in orders[1:])
