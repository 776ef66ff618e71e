"""Holds translations of single operators against numpy: many calls in one module, compiled by TVM alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, Operand
from fusion.frontends.relay.registry import translation_of
from fusion.frontends.relay.syntax import Position, Value
from tests.passes.modules import build_alone


@dataclass(frozen=True)
class Known:
    """An operand that is a constant."""

    array: np.ndarray


@dataclass(frozen=True)
class Case:
    """A call of an operator and what it gives.

    Attributes:
        wanted: The result, or the results, whose shapes and dtypes count too.
        tolerance: Of floats, relative to the largest number of `wanted`.
    """

    operator: str
    operands: Sequence[object]
    wanted: np.ndarray | Sequence[np.ndarray]
    attributes: Mapping[str, Value] = field(default_factory=dict)
    tolerance: float = 2e-6

    def __str__(self) -> str:
        return f"{self.operator}({', '.join(map(_kind, self.operands))}, {dict(self.attributes)})"


def check(cases: Sequence[Case]) -> None:
    """Assert that every case gives what is wanted."""
    assert cases
    builder = relax.BlockBuilder()
    for index, case in enumerate(cases):
        _add_function(builder, f"case_{index}", case.operator, case.operands, case.attributes, str(case))
    machine = relax.VirtualMachine(build_alone(builder.get()), tvm.cpu())
    for index, case in enumerate(cases):
        result = machine[f"case_{index}"](*map(_tensor, _inputs(case.operands)))
        got = [entry.numpy() for entry in (result if isinstance(result, tvm_ffi.Array) else [result])]
        wanted = list(case.wanted) if isinstance(case.wanted, list | tuple) else [np.asarray(case.wanted)]
        assert len(got) == len(wanted), str(case)
        for have, want in zip(got, wanted, strict=True):
            _compare(have, want, case)


def refused(operator: str, *operands: object, **attributes: Value) -> str:
    """Assert that a call is refused and return why."""
    with pytest.raises(Declined) as caught:
        _add_function(relax.BlockBuilder(), "main", operator, operands, attributes, operator)
    return str(caught.value)


def _add_function(
    builder: relax.BlockBuilder,
    name: str,
    operator: str,
    operands: Sequence[object],
    attributes: Mapping[str, Value],
    what: str,
) -> None:
    inputs = [relax.Var(f"x{at}", relax.TensorType(a.shape, str(a.dtype))) for at, a in enumerate(_inputs(operands))]
    waiting = iter(inputs)
    with builder.function(name, inputs):
        with builder.dataflow():
            call = Call(operator, tuple(_operand(o, waiting) for o in operands), attributes, Position(1, 1), builder)
            translation = translation_of(operator)
            assert translation is not None, f"no translation of {operator}"
            try:
                made = translation(call)
            except Declined as refusal:
                raise Declined(f"{what}: {refusal}") from refusal
            results = [builder.emit(e) for e in ([made] if isinstance(made, relax.Expr) else made)]
            whole = results[0] if isinstance(made, relax.Expr) else relax.Tuple(results)
            result = builder.emit_output(whole)
        builder.emit_func_output(result)


def _inputs(operands: Sequence[object]) -> list[np.ndarray]:
    flat = [e for operand in operands for e in (operand if isinstance(operand, tuple) else (operand,))]
    return [np.asarray(entry) for entry in flat if isinstance(entry, np.ndarray | np.generic)]


def _operand(operand: object, waiting) -> Operand:
    if isinstance(operand, tuple):
        return tuple(_operand(entry, waiting) for entry in operand)
    return constant(operand.array) if isinstance(operand, Known) else next(waiting)


def _tensor(array: np.ndarray) -> tvm.runtime.Tensor:
    return tvm.runtime.tensor(np.ascontiguousarray(array).reshape(array.shape))


def _compare(got: np.ndarray, want: np.ndarray, case: Case) -> None:
    what = str(case)
    assert got.shape == want.shape, f"{what}: shape {got.shape}, not {want.shape}"
    assert got.dtype == want.dtype, f"{what}: dtype {got.dtype}, not {want.dtype}"
    if want.dtype.kind != "f":
        np.testing.assert_array_equal(got, want, err_msg=what)
        return
    finite = np.abs(want[np.isfinite(want)])
    scale = max(1.0, float(finite.max(initial=0)))
    np.testing.assert_allclose(got, want, rtol=0, atol=case.tolerance * scale, err_msg=what)


def _kind(operand: object) -> str:
    if isinstance(operand, tuple):
        return f"({', '.join(map(_kind, operand))})"
    array = operand.array if isinstance(operand, Known) else operand
    return f"{array.dtype}{list(array.shape)}" if isinstance(array, np.ndarray) else str(operand)
