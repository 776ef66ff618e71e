"""Calls that are alike get the function that the form made of the first of them; others one of their own."""

from __future__ import annotations

import numpy as np
import pytest
import tvm_ffi
from tvm import IRModule, relax

from backends.tensorir.calls_alike import CallsAlike
from backends.tensorir.legalize import LEGALIZATIONS, SAFE
from backends.tensorir.legalize_calls import LegalizeCalls
from fusion.bindings import Bindings, callee

_LEGALIZE = LegalizeCalls(LEGALIZATIONS, SAFE)


def _module(*make) -> IRModule:
    """Return a module with what each of `make` makes of two tensors."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((4, 8), "float32")) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            made = [builder.emit(each(x, y)) for each in make]
            result = builder.emit_output(relax.Tuple(made))
        builder.emit_func_output(result)
    return builder.get()


def _row(seed: int) -> relax.Expr:
    return relax.const(np.random.default_rng(seed).standard_normal(8).astype("float32"))


def _number(value: float) -> relax.Expr:
    return relax.const(np.float32(value))


def _forms(mod: IRModule, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return which function each call becomes, the same module as without `CallsAlike`."""
    made = _LEGALIZE.run(mod).mod
    with monkeypatch.context() as context:
        context.setattr(CallsAlike, "remembering", lambda self, form: form)
        plain = _LEGALIZE.run(mod).mod
    assert tvm_ffi.structural_equal(made, plain)
    assert str(made) == str(plain)
    values = (binding.value for binding in Bindings.of(made["main"]).all)
    return [callee(value).name_hint for value in values if isinstance(value, relax.Call)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: relax.op.add(x, _row(0)), lambda x, y: relax.op.add(y, _row(1))),
        (lambda x, y: relax.op.multiply(x, _number(0.5)), lambda x, y: relax.op.multiply(y, _number(0.5))),
        (lambda x, y: relax.op.nn.softmax(x, axis=1), lambda x, y: relax.op.nn.softmax(y, axis=-1)),
        (lambda x, y: relax.op.reshape(x, (8, 4)), lambda x, y: relax.op.reshape(y, (8, 4))),
        (lambda x, y: relax.op.clip(x, 0, 6), lambda x, y: relax.op.clip(y, 0, 6)),
    ],
)
def test_alike(one, other, monkeypatch):
    first, second = _forms(_module(one, other), monkeypatch)
    assert first == second


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (lambda x, y: relax.op.multiply(x, _number(0.5)), lambda x, y: relax.op.multiply(x, _number(0.25))),
        (lambda x, y: relax.op.multiply(x, _number(0.0)), lambda x, y: relax.op.multiply(x, _number(-0.0))),
        (lambda x, y: relax.op.multiply(x, _number(0.0)), lambda x, y: relax.op.multiply(x, _row(0))),
        (lambda x, y: relax.op.sum(x, axis=1), lambda x, y: relax.op.sum(x, axis=0)),
        (lambda x, y: relax.op.reshape(x, (8, 4)), lambda x, y: relax.op.reshape(x, (2, 16))),
        (lambda x, y: relax.op.clip(x, 0, 6), lambda x, y: relax.op.clip(x, -1, 6)),
    ],
)
def test_not_alike(one, other, monkeypatch):
    first, second = _forms(_module(one, other), monkeypatch)
    assert first != second


def test_a_constant_that_a_form_puts_first_is_read_where_it_is(monkeypatch):
    """A function for `max(x, row)` reads the row first, and so it does of other rows."""
    rows = (lambda x, y, seed=seed: relax.op.maximum(x, _row(seed)) for seed in range(3))
    assert len(set(_forms(_module(*rows), monkeypatch))) == 1


def test_divisors_that_may_be_0_are_asked_for_their_values(monkeypatch):
    """Whole numbers are looked into: a division by one that is never 0 has no check."""

    def divided(*divisors: int):
        whole = np.array(divisors, "int32")
        return lambda x, y: relax.op.floor_divide(relax.op.astype(x, "int32"), relax.const(whole))

    forms = _forms(_module(divided(2, 3, 2, 3, 2, 3, 2, 3), divided(2, 0, 2, 3, 2, 3, 2, 3)), monkeypatch)
    assert len(set(forms)) == 3
