"""Regions of a graph as ONNX models, for libraries that run such models."""

from __future__ import annotations

from onnx import ModelProto
from tvm import relax
from tvm.ir import GenericConst

from backends.to_onnx.export import export_function, why_not_exported
from fusion.errors import UnsupportedOperatorError


def export_region(function: relax.Function) -> ModelProto:
    """Return `function` as a model, whose inputs and outputs are called by their places.

    Raises:
        UnsupportedOperatorError: ONNX has nothing for an operator or a type.
    """
    outputs = len(function.ret_ty.fields) if isinstance(function.ret_ty, relax.TupleType) else 1
    inputs = [f"input{place}" for place in range(len(function.params))]
    return export_function(function, inputs, [f"output{place}" for place in range(outputs)], "region")


def export_alone(call: relax.Call) -> ModelProto:
    """Return a model of `call` alone, whose constants are inputs.

    Raises:
        UnsupportedOperatorError: ONNX has nothing for it, for the reason that the error names.
    """
    reason = why_not_exported(call)
    if reason:
        raise UnsupportedOperatorError("the call cannot be written as ONNX", why=reason)
    params: list[relax.Var] = []

    def parameter(argument: relax.Expr) -> relax.Expr:
        if isinstance(argument, relax.Tuple):
            return relax.Tuple([parameter(field) for field in argument.fields])
        if not isinstance(argument, relax.Var | GenericConst) or not isinstance(argument.ty, relax.TensorType):
            return argument
        params.append(relax.Var(f"p{len(params)}", argument.ty))
        return params[-1]

    args = [parameter(argument) for argument in call.args]
    builder = relax.BlockBuilder()
    with builder.function("region", params):
        with builder.dataflow():
            result = builder.emit_output(relax.Call(call.op, args, call.attrs, call.ty_args))
        builder.emit_func_output(result)
    return export_region(builder.finalize()["region"])


def dtypes_of(call: relax.Call) -> frozenset[str]:
    """Return the dtypes of all tensors that a call takes and makes."""

    def of(kind: relax.Type) -> frozenset[str]:
        if isinstance(kind, relax.TupleType):
            return frozenset[str]().union(*map(of, kind.fields))
        return frozenset({str(kind.dtype.dtype)}) if isinstance(kind, relax.TensorType) else frozenset()

    return of(call.ty).union(*(of(argument.ty) for argument in call.args))
