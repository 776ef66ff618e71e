"""A template that raised ended the compilation; now the next one takes the kernel and `explain` tells why."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
from tvm import relax

import fusion
from backends.cpu import schedule
from backends.cpu.kernels import priority
from fusion.declined import Declined
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.backends.cpu.kernels.templates import changed
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


def test_anchored_template_fails() -> None:
    with changed("matmul", emit=_raise(ValueError("no such tile"))):
        report = _compile_and_check()
    assert "schedule_anchored failed: ValueError: no such tile" in report
    assert "stitch_stages" in report


def test_anchored_template_does_not_recognize() -> None:
    with changed("matmul", emit=_raise(Declined("two tiles"))):
        assert "schedule_anchored declined: two tiles" in _compile_and_check()


def test_an_anchor_that_no_template_claims() -> None:
    with changed("matmul", claims=lambda marks: False):
        assert "stitch_stages" in _compile_and_check()


def test_a_family_that_is_not_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another lowers its operators, or nobody."""
    products = ("matmul", "batch_matmul")
    for gone in (products[:1], products):
        monkeypatch.setattr(priority, "TEMPLATES", tuple(t for t in priority.TEMPLATES if t.name not in gone))
        assert ("batch_matmul" in _compile_and_check()) == (gone != products)


def test_stitching_fails_too() -> None:
    stitching = changed("stitch_stages", read=_raise(AssertionError()))
    with changed("matmul", emit=_raise(ValueError("no such tile"))), stitching:
        report = _compile_and_check()
    assert "stitch_stages failed: AssertionError" in report
    assert "fallback_loops" in report


def test_everything_fails() -> None:
    broken = _raise(RuntimeError("broken\nfor a reason"))
    with changed("stitch_stages", emit=broken), changed("fallback_loops", emit=broken):
        made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
    reason = "failed: RuntimeError: for a reason"
    assert made.note == f"stitch_stages {reason}; fallback_loops {reason}"
    np.testing.assert_allclose(kernels.run(made, [X])[0], np.exp(X), rtol=1e-5)


def test_vector_math_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule.VectorizeMath, "__call__", _raise(TypeError("no math")))
    made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
