"""Turn complex Relax operators into anchored TensorIR calls with packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.backend import Lowering
from fusion.failures import Failures


@dataclass(frozen=True)
class LowerAnchors:
    """`R.nn.conv2d(x, w)`  ->  `R.call_tir(conv2d, (x, packed w))`; what no lowering takes is left to `LegalizeOps`.

    Attributes:
        lowerings: Those of the backend.
        failures: Takes which lowerings failed; such a call is left to `LegalizeOps` too.
    """

    lowerings: Mapping[str, Sequence[Lowering]]
    failures: Failures = field(default_factory=Failures)
    name: str = "lower_anchors"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        rewriter = _Lower(mod, self.lowerings, self.failures)
        rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
        return rewriter.builder_.get()


@mutator
class _Lower(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, mod: tvm.IRModule, lowerings: Mapping[str, Sequence[Lowering]], failures: Failures) -> None:
        super().__init__(mod)
        self.lowerings, self.failures = lowerings, failures

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Try the lowerings of one operator in order."""
        call = self.visit_expr_post_order(call)
        for lower in self.lowerings.get(str(getattr(call.op, "name", "")), ()):
            lowered = self._lower(lower, call)
            if lowered is not None:
                return lowered
        return call

    def _lower(self, lower: Lowering, call: relax.Call) -> relax.Expr | None:
        try:
            return lower.apply(self.builder_, call)
        except MemoryError:
            raise
        except Exception as error:  # a lowering may have any defect, and TVM prints a warning where one passes
            self.failures.add(f"{lower.name} failed, and another form is used", error)
            return None
