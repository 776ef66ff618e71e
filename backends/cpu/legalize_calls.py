"""Gives every Relax call its TensorIR form, whatever a form that raises does."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache

import tvm
from tvm import relax

from backends.cpu.legalize import LEGALIZATIONS, SAFE
from backends.cpu.legalize.common import FLegalize
from fusion.failures import Failures


@dataclass(frozen=True)
class LegalizeCalls:
    """`R.nn.softmax(x)`  ->  `R.call_tir(softmax, (x,))`, by our form of the operator, or by TVM's where ours fails
    and TVM's is safe.

    Where that fails too, the call stays as it is until TVM's pass has ended: an exception that passes through it would
    make it print a warning to stderr.

    Attributes:
        failures: Takes which of our forms failed.
        forms: Ours; `SAFE` to take TVM's wherever they are safe.
    """

    failures: Failures = field(default_factory=Failures)
    forms: Mapping[str, FLegalize] = field(default_factory=lambda: LEGALIZATIONS)
    name: str = "legalize_calls"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        """Raise what the first call without a form raises."""
        raised: list[Exception] = []
        forms = {name: self._guarded(name, raised) for name in {*_of_tvm(), *self.forms}}
        legal = relax.transform.LegalizeOps(forms)(mod)
        if raised:
            raise raised[0]
        return legal

    def _guarded(self, name: str, raised: list[Exception]) -> FLegalize:
        ours = self.forms.get(name)
        theirs = tvm.ir.Op.get(name).get_attr("FLegalize")

        def legalize(builder: relax.BlockBuilder, call: relax.Call) -> relax.Expr:
            try:
                if ours is not None:
                    return ours(builder, call)
            except MemoryError:
                raise
            except Exception as error:  # a form of ours may have any defect
                if theirs is None or name in SAFE:
                    raised.append(error)
                    return call
                self.failures.add(f"our form of {name} failed, and TVM's is used", error)
            try:
                return theirs(builder, call)
            except MemoryError:
                raise
            except Exception as error:  # TVM raises whatever its checks raise
                raised.append(error)
                return call

        return legalize


@cache
def _of_tvm() -> list[str]:
    """Return the operators of which TVM has a form."""
    names = map(str, tvm.ir.Op.list_op_names())
    return [name for name in names if tvm.ir.Op.get(name).get_attr("FLegalize") is not None]
