"""The pass that lowers Relax operators for which the backend has templates to anchored TensorIR calls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from backends.backend import Lowering
from fusion.bindings import all_bindings
from fusion.declined import Declined, Declines
from fusion.facts import PassResult, TellingPass
from fusion.failures import Failures


@dataclass(frozen=True)
class LoweredAnchors:
    """The lowerings that declined an operator for which they are meant, with their reasons."""

    declines: Declines = field(default_factory=Declines)


@dataclass(frozen=True)
class LowerAnchors(TellingPass[LoweredAnchors]):
    """`R.nn.conv2d(x, w)`  ->  `R.call_tir(conv2d, (x, packed w))`. Other operators are left to `LegalizeCalls`.

    Attributes:
        lowerings: For each operator the lowerings of the backend, in the order in which they are tried.
    """

    lowerings: Mapping[str, Sequence[Lowering]]
    name: str = "lower_anchors"

    def run(self, mod: tvm.IRModule) -> PassResult[LoweredAnchors]:
        """Return the lowered module, with the lowerings that declined, and those that failed."""
        lowered = LoweredAnchors()
        rewriter = _Lower(mod, self.lowerings)
        rewriter.builder_.update_func(mod.get_global_var("main"), rewriter.visit_expr(mod["main"]))
        if rewriter.declined:
            _tell(mod["main"], rewriter.declined, lowered.declines)
        return PassResult(rewriter.builder_.get(), lowered, tuple(rewriter.failures.notes))


def _tell(main: relax.Function, declined: Sequence[tuple[relax.Call, str, list[str]]], declines: Declines) -> None:
    made = {binding.value: str(binding.var.name) for binding in all_bindings(main.body)}
    for call, reason, names in declined:
        declines.add(str(call.op.name), made.get(call, ""), f"not lowered to {', '.join(names)}", reason)


@mutator
class _Lower(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def __init__(self, mod: tvm.IRModule, lowerings: Mapping[str, Sequence[Lowering]]) -> None:
        super().__init__(mod)
        self.lowerings, self.failures = lowerings, Failures()
        self.declined: list[tuple[relax.Call, str, list[str]]] = []

    def visit_call_(self, old: relax.Call) -> relax.Expr:
        """Try the lowerings of one operator in order; keep the reasons of those that decline, with their names."""
        call = lowered = self.visit_expr_post_order(old)
        declined: dict[str, list[str]] = {}
        for lower in self.lowerings.get(str(getattr(call.op, "name", "")), ()):
            try:
                if lower.concerns(self.builder_, call):
                    lowered = lower.apply(self.builder_, call)
                    break
            except MemoryError:
                raise
            except Declined as decline:
                declined.setdefault(str(decline), []).append(lower.name)
            except Exception as error:  # a lowering may have any defect, and TVM prints a warning where one passes
                self.failures.add(f"the lowering to {lower.name} failed, and another form is used", error)
        self.declined += ((old, reason, names) for reason, names in declined.items())
        return lowered
