"""Turn complex Relax operators into anchored TensorIR calls with packed weights."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.backend import Lowering
from fusion.declined import Declined, Declines
from fusion.facts import PassResult, TellingPass
from fusion.failures import Failures


@dataclass(frozen=True)
class LoweredAnchors:
    """Which lowerings declined an operator that they concern, and why."""

    declines: Declines = field(default_factory=Declines)


@dataclass(frozen=True)
class LowerAnchors(TellingPass[LoweredAnchors]):
    """`R.nn.conv2d(x, w)`  ->  `R.call_tir(conv2d, (x, packed w))`; what no lowering takes is left to `LegalizeOps`.

    Attributes:
        lowerings: Those of the backend.
        failures: Takes which lowerings failed; such a call is left to `LegalizeOps` too.
    """

    lowerings: Mapping[str, Sequence[Lowering]]
    failures: Failures = field(default_factory=Failures)
    name: str = "lower_anchors"

    def run(self, mod: tvm.IRModule) -> PassResult[LoweredAnchors]:
        """Return the module with the calls that lowerings make, and what they declined."""
        lowered = LoweredAnchors()
        rewriter = _Lower(mod, self.lowerings, self.failures, lowered.declines)
        rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
        return PassResult(rewriter.builder_.get(), lowered)


@mutator
class _Lower(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(
        self, mod: tvm.IRModule, lowerings: Mapping[str, Sequence[Lowering]], failures: Failures, declines: Declines
    ) -> None:
        super().__init__(mod)
        self.lowerings, self.failures, self.declines = lowerings, failures, declines
        self.result = ""

    def visit_var_binding_(self, binding: relax.VarBinding) -> None:
        """Keep the name of what is bound, for notes."""
        self.result = str(binding.var.name)
        super().visit_var_binding_(binding)

    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Try the lowerings of one operator in order."""
        call = self.visit_expr_post_order(call)
        operator = str(getattr(call.op, "name", ""))
        declined: dict[str, list[str]] = {}
        lowered = call
        for lower in self.lowerings.get(operator, ()):
            try:
                if lower.concerns(self.builder_, call):
                    lowered = lower.apply(self.builder_, call)
                    break
            except MemoryError:
                raise
            except Declined as reason:
                declined.setdefault(str(reason), []).append(lower.name)
            except Exception as error:  # a lowering may have any defect, and TVM prints a warning where one passes
                self.failures.add(f"the lowering to {lower.name} failed, and another form is used", error)
        for why, names in declined.items():
            self.declines.add(operator, self.result, f"not lowered to {', '.join(names)}", why)
        return lowered
