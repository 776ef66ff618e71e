"""Takes a Relax module as it is, with its shapes bound."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import tvm
from tvm import relax

from fusion.errors import InvalidModelError, ShapeError, unknown_input
from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.relax_ifs import take_out_branches
from fusion.shapes import dims_of
from fusion.signature import require_static
from fusion.structural import contains


def import_relax(mod: tvm.IRModule, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
    """Return `mod` with the symbolic dimensions of `main` replaced by those in `shapes`.

    Raises:
        InvalidModelError: There is no Relax function `main`, or a parameter is no tensor.
        UnsupportedOperatorError: What an If computes has no static shape.
        ShapeError: `shapes` names no parameter, contradicts one, or leaves a dimension open.
    """
    main = _main(mod)
    parameters = {str(parameter.name): parameter for parameter in main.params}
    sizes: dict[tvm.tirx.Var, int] = {}
    for name, shape in shapes.items():
        if name not in parameters:
            raise unknown_input(name, parameters)
        _match(name, parameters[name], tuple(int(dim) for dim in shape), sizes)
    bound = relax.transform.BindSymbolicVars({var: size for var, size in sizes.items()}, "main")(mod) if sizes else mod
    inputs, outputs = read_relax_signature(bound)
    require_static(inputs)
    flat, branches = take_out_branches(bound)
    is_uneven = bool(sizes) and contains(main, (tvm.tirx.FloorMod, lambda rest: True))
    return ImportedModel(flat, inputs, outputs, branches=branches, is_uneven=is_uneven)


def read_relax_signature(mod: tvm.IRModule) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return the parameters and results of `main`; results are called output_0, output_1, and so on."""
    main = _main(mod)
    inputs = tuple(_spec(str(parameter.name), parameter.ty) for parameter in main.params)
    result = main.ret_ty
    fields = list(result.fields) if isinstance(result, relax.TupleType) else [result]
    return inputs, tuple(_spec(f"output_{index}", field) for index, field in enumerate(fields))


def _main(mod: tvm.IRModule) -> relax.Function:
    names = [variable.name_hint for variable in mod.get_global_vars()]
    if "main" not in names or not isinstance(mod["main"], relax.Function):
        raise InvalidModelError(
            "the module has no Relax function `main`", hint=f"it has {', '.join(names) or 'no functions'}"
        )
    return mod["main"]


def _spec(name: str, kind: tvm.ir.Type) -> TensorSpec:
    if not isinstance(kind, relax.TensorType):
        raise InvalidModelError(f"{name!r} of `main` is no tensor", where=name, why=f"its type is {kind}")
    return TensorSpec(name, dims_of(kind.shape), str(kind.dtype))


def _match(name: str, parameter: relax.Var, shape: tuple[int, ...], sizes: dict[tvm.tirx.Var, int]) -> None:
    where = f"shapes[{name!r}] = {shape}"
    dims = list(parameter.ty.shape) if isinstance(parameter.ty.shape, relax.ShapeExpr) else None
    if dims is None or len(dims) != len(shape):
        raise ShapeError(
            f"input {name!r} has rank {'unknown' if dims is None else len(dims)}, not {len(shape)}", where=where
        )
    for axis, (dim, size) in enumerate(zip(dims, shape, strict=True)):
        known = int(dim.value) if isinstance(dim, tvm.tirx.IntImm) else sizes.get(dim)
        if known is not None and known != size:
            raise ShapeError(f"dimension {axis} of input {name!r} is {known}, not {size}", where=where)
        if isinstance(dim, tvm.tirx.Var):
            sizes[dim] = size
