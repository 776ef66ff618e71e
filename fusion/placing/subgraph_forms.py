"""The subgraphs that a frontend leaves to ONNX Runtime as Relax, and models that have these forms in their place."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

import onnx
import tvm
from tvm import relax

from backends.subgraphs import RUN_SUBGRAPH
from fusion.bindings import Bindings
from fusion.errors import FusionError
from fusion.frontends import import_model
from fusion.frontends.imported import ImportedModel, names_called
from partition.substitution import substitute

_SMALL = 1024
"""Bytes of a weight that may say which shape something has, or how it is scaled."""


def form_of_subgraph(data: bytes) -> ImportedModel | None:
    """Return an ONNX model as Relax of which our kernels, and libraries, run all; None where some of it is written for
    ONNX Runtime alone, or its results have sizes that only a run knows."""
    with suppress(FusionError):
        form = import_model(onnx.ModelProto.FromString(data), strict=True)
        is_static = all(spec.is_static for spec in (*form.inputs, *form.outputs))
        return form if is_static and not form.branches else None
    return None


def structure_of_subgraph(data: bytes) -> str:
    """Return what tells an ONNX model from others but for the values of its large weights."""
    model = onnx.ModelProto.FromString(data)
    for tensor in model.graph.initializer:
        if tensor.ByteSize() > _SMALL:
            kept = onnx.TensorProto(name=tensor.name, data_type=tensor.data_type, dims=tensor.dims)
            tensor.CopyFrom(kept)
    return hashlib.sha256(model.SerializeToString(deterministic=True)).hexdigest()


def structure_of_model(imported: ImportedModel) -> str:
    """Return the text of a model and its branches, without the values of weights."""
    assert imported.mod is not None
    mods = (imported.mod, *imported.branches.values())
    return "".join(mod.script(show_meta=False) for mod in mods)


def with_forms(imported: ImportedModel, forms: Mapping[str, ImportedModel]) -> ImportedModel:
    """Return a model in which the subgraphs of some keys are these forms of them.

    `y = call_pure_packed("fusion.fallback", key, x)`  ->  the bindings of the form's `main`, which reads `x`.
    """
    if imported.mod is None:
        (form,) = forms.values()
        return replace(imported, mod=form.mod, subgraphs={}, fallbacks=(), has_zero_means=form.has_zero_means)
    mods = {"": imported.mod, **imported.branches}
    inlined = {name: _inline(mod, forms) if names_called(mod) & forms.keys() else mod for name, mod in mods.items()}
    return replace(
        imported,
        mod=inlined.pop(""),
        branches=inlined,
        subgraphs={key: data for key, data in imported.subgraphs.items() if key not in forms},
        fallbacks=tuple(node for node in imported.fallbacks if node.subgraph not in forms),
    )


def _inline(mod: tvm.IRModule, forms: Mapping[str, ImportedModel]) -> tvm.IRModule:
    main, bindings = mod["main"], Bindings.of(mod["main"])
    env: dict[relax.Var, relax.Expr] = {}
    builder = relax.BlockBuilder(tvm.IRModule({n: f for n, f in mod.functions.items() if n.name_hint != "main"}))
    with builder.function("main", list(main.params)):
        with builder.dataflow():
            for binding in bindings.all:
                form = forms.get(_key_of(binding.value))
                if form is None:
                    env[binding.var] = _emit(builder, binding, env)
                else:
                    arguments = [substitute(argument, env) for argument in binding.value.args[2:]]
                    assert form.mod is not None
                    env[binding.var] = _body(builder, form.mod["main"], arguments)
            result = builder.emit_output(substitute(bindings.result, env))
        builder.emit_func_output(result)
    written = mod.clone()
    written["main"] = builder.finalize()["main"].with_attrs(dict(main.attrs or {}))
    return written


def _key_of(value: relax.Expr) -> str:
    """Return the key of the subgraph that `value` calls; "" where it calls none."""
    if not isinstance(value, relax.Call) or len(value.args) < 2:
        return ""
    function, key, *_ = value.args
    is_subgraph = isinstance(function, relax.ExternFunc) and str(function.global_symbol) == RUN_SUBGRAPH
    return str(key.value) if is_subgraph else ""


def _body(builder: relax.BlockBuilder, main: relax.Function, arguments: list[relax.Expr]) -> relax.Expr:
    """Emit what a form's `main` computes of `arguments`; return its result, a variable or a tuple of them."""
    env: dict[relax.Var, relax.Expr] = dict(zip(main.params, arguments, strict=True))
    bindings = Bindings.of(main)
    for binding in bindings.all:
        env[binding.var] = _emit(builder, binding, env)
    return substitute(bindings.result, env)


def _emit(builder: relax.BlockBuilder, binding: relax.Binding, env: Mapping[relax.Var, relax.Expr]) -> relax.Expr:
    """Return what stands for the variable of a binding: no other one for an alias, a tuple, or a field of a tuple."""
    made = substitute(binding.value, env)
    if isinstance(binding, relax.MatchCast):
        return builder.match_cast(made, binding.ty)
    if isinstance(made, relax.TupleGetItem) and isinstance(made.tuple_value, relax.Tuple):
        return made.tuple_value.fields[made.index]
    return made if isinstance(made, relax.Var | relax.Tuple) else builder.emit(made, binding.var.name)
