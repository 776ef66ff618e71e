"""Puts the branches of run-time conditions into `main`, each of which was lowered as a module of its own."""

from __future__ import annotations

from collections.abc import Mapping

import tvm
from tvm import relax, tirx

from fusion.frontends.imported import BRANCH
from fusion.passes.rebuild import all_bindings
from partition.substitution import substitute


def inline_branches(mod: tvm.IRModule, branches: Mapping[str, tvm.IRModule]) -> tvm.IRModule:
    """Return `mod` with every `branch_call` of `main` replaced by an If, and the kernels of `branches` added.

    Kernels of several branches that are equal become one. An If splits the dataflow, so that `main` and the branches
    are one block each that is no dataflow.

        y = call_pure_packed("fusion.branch", c, "b0", "b1", x)
        ->  if c: t = call_tir(k0, x); y = t
            else: e = call_tir(k1, x); y = e
    """
    if not branches:
        return mod
    builder = relax.BlockBuilder(mod)
    inlined: dict[str, relax.Function] = {}
    for name, branch in branches.items():
        kernels = {
            symbol: builder.add_func(func, symbol.name_hint)
            for symbol, func in branch.functions.items()
            if isinstance(func, tirx.PrimFunc)
        }
        inlined[name] = _inline(_sequential(branch), inlined, kernels)
    result = builder.get()
    result["main"] = _inline(_sequential(mod), inlined, {})
    return relax.transform.Normalize()(result)


def _sequential(mod: tvm.IRModule) -> relax.Function:
    return relax.transform.ToNonDataflow()(mod)["main"]


def _inline(
    func: relax.Function,
    branches: Mapping[str, relax.Function],
    kernels: Mapping[tvm.ir.GlobalVar, tvm.ir.GlobalVar],
) -> relax.Function:
    """Return `func` with its branches in it and its kernels called by their new names."""
    bindings = []
    for binding in all_bindings(func):
        value = substitute(binding.value, kernels)
        if isinstance(binding, relax.MatchCast):
            bindings.append(relax.MatchCast(binding.var, value, binding.ty))
        else:
            bindings.append(relax.VarBinding(binding.var, _if(value, branches) if _is_branch_call(value) else value))
    body = relax.SeqExpr([relax.BindingBlock(bindings)], func.body.body)
    return relax.Function(func.params, body, func.ret_ty, func.is_pure, func.attrs, func.span)


def _is_branch_call(value: relax.Expr) -> bool:
    is_packed = isinstance(value, relax.Call) and isinstance(value.args[0], relax.ExternFunc)
    return is_packed and str(value.args[0].global_symbol) == BRANCH


def _if(call: relax.Call, branches: Mapping[str, relax.Function]) -> relax.If:
    _, condition, then, otherwise, *arguments = call.args
    return relax.If(condition, *(_body(branches[str(name.value)], arguments) for name in (then, otherwise)))


def _body(branch: relax.Function, arguments: list[relax.Expr]) -> relax.SeqExpr:
    """Return the body of `branch`, each of which is called once, over `arguments`."""
    bound: relax.Function = branch.bind_params(dict(zip(branch.params, arguments, strict=True)))
    return bound.body
