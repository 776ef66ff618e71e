"""Rebuild `main` binding by binding: the frame that passes over Relax modules share."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax, tirx

from fusion.bindings import Bindings, call_name
from partition.substitution import substitute

Environment = dict[relax.Var, relax.Expr]
Visit = Callable[[relax.BlockBuilder, relax.Var, relax.Expr], relax.Expr]


def rebuild_main(mod: tvm.IRModule, visit: Visit, only: tuple[str, ...] = ()) -> tvm.IRModule:
    """Return `mod` with every binding of `main` replaced by what `visit` makes of it.

    With `only`, a module without a call of these operators is returned as it is: rebuilding BERT-base takes 13 ms, a
    network of 60 convolutions 52.

    `visit(builder, var, value)` gets `value` with its variables already replaced; it returns the expression to bind
    under the old name and may emit others before it, and add PrimFuncs. Bindings that end up unused are removed.
    """
    main = mod["main"]
    bindings = Bindings.of(main)
    if only and all(call_name(value) not in only for value in bindings.values.values()):
        return mod
    others = {symbol: func for symbol, func in mod.functions.items() if symbol.name_hint != "main"}
    builder = relax.BlockBuilder(tvm.IRModule(others))  # whose names new functions must not have
    env: Environment = {}
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            for binding in bindings.all:
                var, value = binding.var, substitute(binding.value, env)
                if isinstance(binding, relax.MatchCast):
                    env[var] = builder.match_cast(value, binding.ty)
                    continue
                made = visit(builder, var, value)
                env[var] = made if isinstance(made, relax.Var) else builder.emit(made, var.name)
            result = builder.emit_output(substitute(bindings.result, env))
        builder.emit_func_output(result)
    rebuilt, made = mod.clone(), builder.finalize()
    for symbol, func in made.functions.items():
        if isinstance(func, tirx.PrimFunc):
            rebuilt[symbol] = func
    rebuilt["main"] = made["main"].with_attrs(dict(main.attrs or {}))
    return relax.transform.DeadCodeElimination(["main"])(rebuilt)


def with_attrs(call: relax.Call, args: list[relax.Expr], **changes: object) -> relax.Call:
    """Return `call` on `args` with the attributes named in `changes` replaced."""
    attrs = call.attrs
    if changes:
        info = type(attrs).__tvm_ffi_type_info__
        fields = {field.name: getattr(attrs, field.name) for field in info.fields}
        attrs = tvm.ir.make_node(info.type_key, **{**fields, **changes})
    return relax.Call(call.op, args, attrs, call.ty_args)
