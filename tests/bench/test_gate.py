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


@pytest.mark.parametrize(("scale", "error"), [(1.0, 0.5), (1e-3, 0.5), (1e-6, 0.5e-3), (0.0, 0.0)])
def test_outputs_below_the_floor_are_judged_at_the_floor(scale: float, error: float) -> None:
    reference = scale * np.array([0.5, -1.0])
    assert gate.error_of(0.5 * reference, reference) == pytest.approx(error)


def test_a_detector_that_sees_nothing_is_right_although_its_sigmoid_is_0() -> None:
    reference = np.array([6e-9, 1e-8])
    baseline = np.array([0.0, 1e-8])
    assert verdict_of(reference.astype(np.float32), baseline, reference).passed
    assert verdict_of(np.zeros(2), reference, reference).passed
    assert not verdict_of(np.full(2, 1e-5), baseline, reference).passed


def test_in_bfloat16_the_other_engine_measures_what_is_allowed() -> None:
    verdict = gate.Verdict(reference="onnxruntime", baseline="openvino")
    gate.judge(verdict, {"y": REFERENCE + 0.19}, {"y": REFERENCE + 0.1}, {"y": REFERENCE})
    assert verdict.passed
    gate.judge(verdict, {"y": REFERENCE + 0.22}, {"y": REFERENCE + 0.1}, {"y": REFERENCE})
    assert not verdict.passed
