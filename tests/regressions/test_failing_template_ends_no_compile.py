"""A template that raised ended the compilation; now the next one takes the kernel and `explain` tells why."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any, NoReturn

import numpy as np
import pytest
from tvm import relax

import fusion
from backends.cpu import schedule
from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Marks, Template
from fusion.declined import Declined
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.backends.cpu.kernels.anchored import one_kernel
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


def takers() -> list[Template[Any, Any]]:
    """Return who is asked for the kernel of the product: the family that claims it, and those that take any."""
    kernel = one_kernel(_product, [X])
    found = list(priority.takers(kernel, Marks.of(kernel)))
    assert [template.claims is None for template in found] == [False, *(True for _ in found[1:])]
    return found


def test_nothing_to_note() -> None:
    assert "failed" not in _compile_and_check()


def test_anchored_template_fails() -> None:
    claiming, behind, *_ = takers()
    with changed(claiming.name, emit=_raise(ValueError("no such tile"))):
        report = _compile_and_check()
    assert "schedule_anchored failed: ValueError: no such tile" in report
    assert behind.name in report


def test_anchored_template_does_not_recognize() -> None:
    with changed(takers()[0].name, emit=_raise(Declined("two tiles"))):
        assert "schedule_anchored declined: two tiles" in _compile_and_check()


def test_an_anchor_that_no_template_claims() -> None:
    claiming, behind, *_ = takers()
    with changed(claiming.name, claims=lambda marks: False):
        assert behind.name in _compile_and_check()


def test_a_family_that_is_not_in_the_list(monkeypatch: pytest.MonkeyPatch) -> None:
    """Another lowers its operators, or nobody."""
    products = [template.name for template in priority.TEMPLATES if "relax.matmul" in template.lowerings]
    behind = takers()[1]
    for many in range(len(products) + 1):
        gone, left = products[:many], products[many:]
        monkeypatch.setattr(priority, "TEMPLATES", tuple(t for t in priority.TEMPLATES if t.name not in gone))
        assert (left[0] if left else behind.name) in _compile_and_check()


def test_those_behind_it_fail_too() -> None:
    claiming, *others, last = (template.name for template in takers())
    with ExitStack() as all_but_the_last:
        all_but_the_last.enter_context(changed(claiming, emit=_raise(ValueError("no such tile"))))
        for name in others:
            all_but_the_last.enter_context(changed(name, read=_raise(AssertionError())))
        report = _compile_and_check()
    assert all(f"{name} failed: AssertionError" in report for name in others)
    assert last in report


def test_everything_fails() -> None:
    broken = _raise(RuntimeError("broken\nfor a reason"))
    with ExitStack() as all_of_them:
        names = [template.name for template in takers()[1:]]
        for name in names:
            all_of_them.enter_context(changed(name, emit=broken))
        made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
    assert made.note == "; ".join(f"{name} failed: RuntimeError: for a reason" for name in names)
    np.testing.assert_allclose(kernels.run(made, [X])[0], np.exp(X), rtol=1e-5)


def test_vector_math_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule.VectorizeMath, "__call__", _raise(TypeError("no math")))
    made = kernels.schedule(lambda builder, x: relax.op.exp(x), [X])
    assert made.template == "unscheduled"
