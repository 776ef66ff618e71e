"""Replaces operators whose result sizes depend on data by calls of functions on the host."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax
from tvm.relax.expr_functor import PyExprMutator, mutator

from fusion.bindings import call_name

FUNCTIONS = {"nonzero": "fusion.nonzero", "unique": "fusion.unique"}
"""Operator to what `fusion.module.host_functions` registers; TVM's own are part of its compiler's package."""


@dataclass(frozen=True)
class CallHostFunctions:
    """`R.nonzero(x)`  ->  `R.call_pure_packed("fusion.nonzero", x)`."""

    name: str = "call_host_functions"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        caller = _Caller(mod)
        caller.builder_.update_func(mod.get_global_var("main"), caller.visit_expr(mod["main"]))
        return caller.builder_.get()


@mutator
class _Caller(PyExprMutator):  # type: ignore[misc]  # TVM's decorator is untyped
    def visit_call_(self, call: relax.Call) -> relax.Expr:
        """Replace one call."""
        call = self.visit_expr_post_order(call)
        function = FUNCTIONS.get(call_name(call))
        return call if function is None else relax.op.call_pure_packed(function, *call.args, ty_args=call.ty)
