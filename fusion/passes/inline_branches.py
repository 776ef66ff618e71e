"""Inlines the branches of run-time conditions, each of which was lowered as a module of its own, into `main`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import tvm
from tvm import relax, tirx

from fusion.bindings import Bindings
from fusion.frontends.imported import BranchCall, read_branch_call
from partition.substitution import substitute


@dataclass(frozen=True)
class InlineBranches:
    """Every `branch_call` of `main`  ->  an If, and the kernels of its two branches beside those of `main`.

    Equal kernels of several branches become one; kernels of branches that are not called are dropped. Relax allows no
    If in a dataflow block, so a `main` with an If, and its branches, become ordinary binding blocks.

        y = call_pure_packed("fusion.branch", c, "b0", "b1", x)
        ->  if c: t = call_tir(k0, x); y = t
            else: e = call_tir(k1, x); y = e
    """

    branches: Mapping[str, tvm.IRModule]
    name: str = "inline_branches"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        if not any(read_branch_call(value) for _, value in Bindings.of(mod["main"]).values.items()):
            return mod
        builder = relax.BlockBuilder(mod.clone())
        main = self._inlined(mod, {}, builder)
        result = builder.get()
        result["main"] = main
        return relax.transform.Normalize()(result)

    def _inlined(
        self, mod: tvm.IRModule, kernels: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar], builder: relax.BlockBuilder
    ) -> relax.Function:
        """Return `main` of `mod` with its branches in it, calling the kernels of `mod` by the names in `kernels`."""
        func = relax.transform.ToNonDataflow()(mod)["main"]
        made = []
        for binding in Bindings.of(func).all:
            value = substitute(binding.value, kernels)
            if isinstance(binding, relax.MatchCast):
                made.append(relax.MatchCast(binding.var, value, binding.ty))
                continue
            call = read_branch_call(value)
            made.append(relax.VarBinding(binding.var, value if call is None else self._if(call, builder)))
        body = relax.SeqExpr([relax.BindingBlock(made)], func.body.body)
        return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)

    def _if(self, call: BranchCall, builder: relax.BlockBuilder) -> relax.If:
        then, otherwise = (self._body(name, call.arguments, builder) for name in (call.then, call.otherwise))
        return relax.If(call.condition, then, otherwise)

    def _body(self, name: str, arguments: list[relax.Expr], builder: relax.BlockBuilder) -> relax.SeqExpr:
        """Return what the branch `name` computes from `arguments`, its kernels added to `builder`."""
        branch = self.branches[name]
        kernels = {
            symbol: builder.add_func(func, symbol.name_hint)
            for symbol, func in branch.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        func = self._inlined(branch, kernels, builder)
        bound: relax.Function = func.bind_params(dict(zip(func.params, arguments, strict=True)))
        return bound.body
