"""A template that raised ended the compilation; now the next one takes the kernel and `explain` tells why."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
from tvm import relax

import fusion
from backends.cpu import schedule
from backends.cpu.kernels import memory_bound
from backends.cpu.kernels.fallback_loops.emit import FallbackLoops
from backends.cpu.kernels.matmul.emit import Matmul
from backends.cpu.kernels.stitch_stages.emit import StitchStages
from backends.tensorir.result import NotRecognized
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.regressions.relax_models import module

WEIGHT = np.random.default_rng(0).normal(size=(8, 5)).astype("float32")
X = np.random.default_rng(1).normal(size=(4, 8)).astype("float32")


def _raise(error: Exception) -> object:
    def apply(*arguments: object) -> NoReturn:
        raise error

    return apply


def _product(builder: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.nn.relu(builder.emit(relax.op.matmul(x, relax.const(WEIGHT))))


def _compile_and_check() -> str:
    compiled = fusion.compile(module(_product, {"x": (X.shape, "float32")}), threads=1)
    np.testing.assert_allclose(compiled(X)[0], np.maximum(X @ WEIGHT, 0), rtol=1e-5, atol=1e-5)
    return compiled.explain()


def test_nothing_to_note() -> None:
    assert "failed" not in _compile_and_check()


def test_anchored_template_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matmul, "emit", _raise(ValueError("no such tile")))
    report = _compile_and_check()
    assert "schedule_anchored failed: ValueError: no such tile" in report
    assert "stitch_stages" in report


def test_anchored_template_does_not_recognize(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matmul, "emit", _raise(NotRecognized("two tiles")))
    assert "schedule_anchored declined: two tiles" in _compile_and_check()


def test_unknown_kind_of_anchor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "ANCHORED", {})
    assert "schedule_anchored failed: KeyError" in _compile_and_check()


def test_stitching_fails_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matmul, "emit", _raise(ValueError("no such tile")))
    monkeypatch.setattr(StitchStages, "apply", _raise(AssertionError()))
    report = _compile_and_check()
    assert "stitch_stages failed: AssertionError" in report
    assert "fallback_loops" in report


def test_everything_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    for template in (StitchStages, FallbackLoops):
        monkeypatch.setattr(template, "apply", _raise(RuntimeError("broken\nfor a reason")))
    made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
    reason = "failed: RuntimeError: for a reason"
    assert made.note == f"stitch_stages {reason}; fallback_loops {reason}"
    np.testing.assert_allclose(kernels.run(made, [X])[0], np.exp(X), rtol=1e-5)


def test_vector_math_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_bound.VectorizeMath, "__call__", _raise(TypeError("no math")))
    made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
