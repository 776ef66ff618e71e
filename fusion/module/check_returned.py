"""Makes `main` check the tensors that foreign functions return: kernels trust the shapes and dtypes they were made for.

    y: Tensor((4,), "float32") = call_packed("fusion.fallback", x)
->  returned: Any = call_packed("fusion.fallback", x); y = match_cast(returned, Tensor((4,), "float32"))

ONNX Runtime only warns of a result that has another shape than its model says. A check takes 0.1 us. What it says where
it fails is made of the type by TVM; `name_libraries` adds who returned that.
"""

from __future__ import annotations

import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH, returned_by
from fusion.bindings import variables


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


def name_libraries(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with checks in `main` that name the library which returned what they look at.

    Expects the form after `VMShapeLower`, where checks are calls.
    """
    main = mod["main"]
    result = tvm.IRModule(dict(mod.functions), attrs=mod.attrs)
    body = _name_libraries(main.body, {})
    named = relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span)
    result.update_func(result.get_global_var("main"), named)
    return result


def _name_libraries(body: relax.SeqExpr, keys: dict[relax.Var, str]) -> relax.SeqExpr:
    """`keys` are those of the subgraphs that returned variables, or what these are fields of."""
    blocks = []
    for block in body.blocks:
        made = []
        for binding in block.bindings:
            value = binding.value
            if isinstance(value, relax.If):
                sides = (_name_libraries(side, dict(keys)) for side in (value.true_branch, value.false_branch))
                binding = relax.VarBinding(binding.var, relax.If(value.cond, *sides, value.span), binding.span)
            elif isinstance(binding, relax.VarBinding) and (key := _key_in(value, keys)):
                keys[binding.var] = key
                binding = relax.VarBinding(binding.var, _naming(value, returned_by(key)), binding.span)
            made.append(binding)
        blocks.append(relax.BindingBlock(made, block.span))
    return relax.SeqExpr(blocks, body.body)


def _key_in(value: relax.Expr, keys: dict[relax.Var, str]) -> str:
    """Return the key of the subgraph that a call runs, or that returned what TVM's functions of the run look at, or
    take a field of; "" if none."""
    if not isinstance(value, relax.Call) or not isinstance(value.op, relax.ExternFunc):
        return ""
    name = str(value.op.global_symbol)
    if name == RUN_SUBGRAPH:
        key, *_ = value.args
        return str(key.value)
    read = variables(value) if name.startswith("vm.builtin.") else ()
    return next((keys[var] for var in read if var in keys), "")


def _naming(value: relax.Call, who: str) -> relax.Call:
    """Return a call with `who` before the text that it raises an error with, if it has one."""
    *others, last = value.args
    if not isinstance(last, tvm.ir.StringImm) or str(value.op.global_symbol) == RUN_SUBGRAPH:
        return value
    return relax.Call(value.op, [*others, tvm.ir.StringImm(f"{who}: {last.value}")], value.attrs, value.ty_args)
