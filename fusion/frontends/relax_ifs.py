"""Takes the branches of a Relax function's Ifs out of it, as `imported.branch_call` describes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import tvm
from tvm import relax

from fusion.bindings import Bindings
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.imported import branch_call
from fusion.shapes import known_extents


def take_out_branches(mod: tvm.IRModule) -> tuple[tvm.IRModule, dict[str, tvm.IRModule]]:
    """Return `mod` with a `branch_call` for each If of `main`, and the modules of the branches, inner ones first.

        if c: t = f(x); y = t else: e = g(x); y = e
        ->  y = call_pure_packed("fusion.branch", c, "branch_0", "branch_1", x)

    Raises:
        UnsupportedOperatorError: What an If computes has no static shape.
    """
    branches: dict[str, tvm.IRModule] = {}
    made = _without_ifs(mod, branches, count())
    return tvm.IRModule(dict(made.functions), attrs=mod.attrs), branches  # it says where its operators come from


def _without_ifs(mod: tvm.IRModule, branches: dict[str, tvm.IRModule], numbers: Iterator[int]) -> tvm.IRModule:
    main = relax.transform.ToNonDataflow()(mod)["main"]
    found = Bindings.of(main).all
    if not any(map(_is_if, found)):
        return mod
    made: list[relax.Binding] = []
    for binding in found:
        if not _is_if(binding):
            made.append(binding)
            continue
        choice, condition = binding.value, binding.value.cond
        if condition.ty.ndim:
            condition = relax.Var("condition", relax.TensorType((), "bool"))
            made.append(relax.VarBinding(condition, relax.op.reshape(choice.cond, ())))
        reads = list(dict.fromkeys([*_reads(choice.true_branch), *_reads(choice.false_branch)]))
        then, otherwise = (
            _take_out(mod, block, reads, branches, numbers) for block in (choice.true_branch, choice.false_branch)
        )
        call = branch_call(condition, then, otherwise, reads, _static(binding.var))
        made.append(relax.VarBinding(binding.var, call))
    body = relax.SeqExpr([relax.BindingBlock(made)], main.body.body)
    return _with_main(mod, relax.Function(main.params, body, main.ret_ty, main.is_pure, main.attrs, main.span))


def _is_if(binding: relax.Binding) -> bool:
    return isinstance(binding, relax.VarBinding) and isinstance(binding.value, relax.If)


def _reads(block: relax.Expr) -> list[relax.Var]:
    return list(relax.analysis.free_vars(block))


def _take_out(
    mod: tvm.IRModule,
    block: relax.SeqExpr,
    reads: list[relax.Var],
    branches: dict[str, tvm.IRModule],
    numbers: Iterator[int],
) -> str:
    """Add the module of a function of `reads` that computes `block` to `branches`; return its name."""
    function = relax.utils.copy_with_new_vars(relax.Function(reads, block, block.ty))
    branch = _without_ifs(_with_main(mod, function), branches, numbers)
    name = f"branch_{next(numbers)}"
    branches[name] = branch
    return name


def _with_main(mod: tvm.IRModule, main: relax.Function) -> tvm.IRModule:
    """Return `mod` with another `main`, all of it one block of dataflow."""
    result = tvm.IRModule(dict(mod.functions))
    result["main"] = main
    return relax.transform.ConvertToDataflow(1)(relax.transform.Normalize()(result))


def _static(variable: relax.Var) -> tvm.ir.Type:
    """Return the type of what an If computes."""
    kind = variable.ty
    for field in kind.fields if isinstance(kind, relax.TupleType) else [kind]:
        if known_extents(getattr(field, "shape", None)) is None:
            raise UnsupportedOperatorError(
                f"the If that computes {str(variable.name)!r} has no static shape", why=f"its type is {kind}"
            )
    return kind
