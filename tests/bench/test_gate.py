"""The gate passes what float32 allows and nothing more."""

from __future__ import annotations

import numpy as np
import pytest

from bench import gate

REFERENCE = np.array([1.0, -2.0, 4.0])


def verdict_of(actual: np.ndarray, baseline: np.ndarray, reference: np.ndarray) -> gate.Verdict:
    verdict = gate.Verdict()
    gate.judge(verdict, {"y": actual}, {"y": baseline}, {"y": reference})
    return verdict


@pytest.mark.parametrize(("offset", "passes"), [(0.0, True), (3e-4, True), (5e-4, False), (np.nan, False)])
def test_slack_is_a_tenth_of_the_tolerance_of_the_scale(offset: float, passes: bool) -> None:
    verdict = verdict_of(REFERENCE + np.array([0, offset, 0]), REFERENCE, REFERENCE)
    assert verdict.passed is passes
    assert bool(verdict.reasons) is not passes


@pytest.mark.parametrize(("factor", "passes"), [(1.9, True), (2.2, False)])
def test_twice_the_baseline_error_is_allowed(factor: float, passes: bool) -> None:
    assert verdict_of(REFERENCE + 0.1 * factor, REFERENCE + 0.1, REFERENCE).passed is passes


def test_special_values_must_be_where_the_reference_has_them() -> None:
    reference = np.array([np.nan, np.inf, 1.0])
    assert gate.error_of(reference.astype(np.float32), reference) == 0
    assert gate.error_of(np.array([np.nan, -np.inf, 1.0]), reference) == np.inf
    assert gate.error_of(np.array([0.0, np.inf, 1.0]), reference) == np.inf


def test_integers_must_be_equal() -> None:
    reference = np.array([1, 2, 3, 4])
    assert gate.error_of(np.array([1, 2, 3, 5]), reference) == 0.25
    assert not verdict_of(np.array([1, 2, 3, 5]), reference, reference).passed


def test_wrong_shape_and_missing_output_fail() -> None:
    assert gate.error_of(REFERENCE[None], REFERENCE) == np.inf
    verdict = gate.Verdict()
    gate.judge(verdict, {}, {"y": REFERENCE}, {"y": REFERENCE})
    assert verdict.reasons == ["y: there is no such output"]
