"""The pass that legalizes the remaining Relax operators to TensorIR, and survives legalizations that raise."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cache

import tvm
from tvm import relax, topi

from backends.tensorir.calls_alike import CallsAlike
from backends.tensorir.legalize.common import FLegalize
from fusion.bindings import Bindings
from fusion.errors import UnsupportedOperatorError
from fusion.facts import PassResult, TellingPass
from fusion.failures import Failures
from fusion.shapes import dims_of, is_static


@dataclass(frozen=True)
class LegalizeCalls(TellingPass[None]):
    """`R.nn.softmax(x)`  ->  `R.call_tir(softmax, (x,))`, by our legalization of the operator, or by TVM's
    if ours fails and TVM's is safe.

    If that fails too, the call stays as it is until TVM's pass has ended, and the error is raised then: an exception
    that passes through TVM's pass would make it print a warning to stderr.

    Attributes:
        forms: Our legalizations, by operator.
        safe: The operators whose TVM legalization could access memory out of bounds, or trap.
    """

    forms: Mapping[str, FLegalize]
    safe: Collection[str]
    name: str = "legalize_calls"

    def run(self, mod: tvm.IRModule) -> PassResult[None]:
        """Return the legalized module, and notes of our legalizations that failed.

        Raises:
            UnsupportedOperatorError: A legalization needs a shape that only the run knows.
            Exception: The error of the first call that cannot be legalized; a ValueError if there was none.
        """
        raised, failures, alike = list[Exception](), Failures(), CallsAlike()
        names = {*_of_tvm(), *self.forms}
        forms = {name: alike.remembering(self._guarded(name, raised, failures)) for name in names}
        legal = relax.transform.LegalizeOps(forms)(mod)
        if raised:
            raise raised[0]
        if next(_calls(legal, forms), None) is not None:
            _refuse(_calls(relax.transform.DeadCodeElimination(["main"])(legal), forms))
        return PassResult(legal, None, tuple(failures.notes))

    def _guarded(self, name: str, raised: list[Exception], failures: Failures) -> FLegalize:
        """Return the legalization of an operator. It adds to `failures` the errors of ours, and to `raised` those of
        calls that stay as they are."""
        ours = self.forms.get(name)
        theirs = tvm.ir.Op.get(name).get_attr("FLegalize")

        def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
            try:
                if ours is not None:
                    return ours(builder, call)
            except MemoryError:
                raise
            except Exception as error:  # a form of ours may have any defect
                if _has_no_elements(call):
                    return _zeros(builder, call)
                if theirs is None or name in self.safe:
                    raised.append(error)
                    return call
                failures.add(f"our form of {name} failed, and TVM's is used", error)
            try:
                return theirs(builder, call)
            except MemoryError:
                raise
            except Exception as error:  # TVM raises whatever its checks raise
                if _has_no_elements(call):
                    return _zeros(builder, call)
                raised.append(error)
                return call

        return legalize


def _has_no_elements(call: relax.Call) -> bool:
    """Return whether no result has elements; legalizations that divide by a size fail on these."""
    return all(isinstance(made, relax.TensorType) and 0 in (dims_of(made.shape) or ()) for made in _results(call))


def _zeros(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
    zeros = [
        builder.call_te(topi.full, made.shape.values, str(made.dtype.dtype), 0, primfunc_name_hint="full")
        for made in _results(call)
    ]
    return relax.Tuple([*map(builder.emit, zeros)]) if isinstance(call.ty, relax.TupleType) else zeros[0]


def _results(call: relax.Call) -> list[relax.Type]:
    return [*call.ty.fields] if isinstance(call.ty, relax.TupleType) else [call.ty]


def _calls(mod: tvm.IRModule, forms: Collection[str]) -> Iterator[tuple[relax.Var, relax.Call]]:
    """Yield the calls in `main` of operators that have legalizations, with the variables of their results."""
    for var, value in Bindings.of(mod["main"]).values.items():
        if isinstance(value, relax.Call) and isinstance(value.op, tvm.ir.Op) and str(value.op.name) in forms:
            yield var, value


def _refuse(left: Iterator[tuple[relax.Var, relax.Call]]) -> None:
    for var, call in left:
        operator = str(call.op.name).removeprefix("relax.")
        operands = ", ".join(str(argument.ty) for argument in call.args)
        if all(is_static(argument) for argument in call.args if isinstance(argument.ty, relax.TensorType)):
            raise ValueError(f"TVM has no form of {operator} for {operands} with {call.attrs}")
        raise UnsupportedOperatorError(
            f"{operator} needs the shapes of its operands, and only the run knows one of them",
            where=f"{operator} {str(var.name)!r}",
            why=f"its operands are {operands}",
            hint="name the sizes of the operand by R.match_cast",
        )


@cache
def _of_tvm() -> list[str]:
    """Return the operators for which TVM has a legalization."""
    names = map(str, tvm.ir.Op.list_op_names())
    return [name for name in names if tvm.ir.Op.get(name).get_attr("FLegalize") is not None]
