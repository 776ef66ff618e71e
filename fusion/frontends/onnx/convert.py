"""Converts one node to Relax and checks the result against the types that ONNX infers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from onnx import NodeProto, TensorProto, TypeProto
from tvm import relax
from tvm.relax import BlockBuilder, Expr

from fusion.errors import FusionError
from fusion.frontends.onnx.fallback import NotATensor
from fusion.frontends.onnx.node import Decline, Node, last_line
from fusion.frontends.onnx.pool_windows import refuse_pool_without_places
from fusion.frontends.onnx.registry import converter_of
from fusion.frontends.onnx.scope import Scope, identifier
from fusion.frontends.onnx.tvm_converters import convert_with_tvm, tvm_converts
from fusion.frontends.onnx.types import NATIVE_DTYPES, dtype_name, static_shape, type_of_spec
from fusion.frontends.onnx.windows import refuse_small_image
from fusion.signature import TensorSpec

# Operators whose output shape no constant could tell; only fallback nodes and the model's output read such values.
_DATA_DEPENDENT = frozenset({"Compress", "NonZero", "Unique"})


def convert_node(proto: NodeProto, opset: int, scope: Scope, builder: BlockBuilder) -> None:
    """Compute the outputs of `proto` in Relax and record them in `scope`.

    Raises:
        Decline: No converter takes the node; the text says why.
        ShapeError: Its attributes or inputs contradict each other.
    """
    outputs = tuple(scope.types.get(name) if name else None for name in proto.output)
    node = Node(proto, opset, outputs, scope, builder)
    if not is_native(proto, scope):
        raise Decline("an input is no static tensor of a native dtype")
    refuse_small_image(node)
    refuse_pool_without_places(node)
    _refuse_large_constant(node)
    results = _empty_tensors(outputs) or _first_that_takes(node)
    for name, kind, result in zip(proto.output, outputs, results, strict=False):
        known = kind or _type_of(result)
        if name and known is not None:
            scope.types[name] = known
            scope.exprs[name] = _bind(name, result, builder)


_OF_CONSTANTS = frozenset({"ConstantOfShape", "EyeLike", "OneHot", "Range"})
"""Operators whose converters make constants of their results' size, or of a part of it."""
_LARGEST_CONSTANT = 64 << 20
"""Elements."""


def _refuse_large_constant(node: Node) -> None:
    if node.op in _OF_CONSTANTS and math.prod(static_shape(node.outputs[0]) or ()) > _LARGEST_CONSTANT:
        raise Decline(f"its result has more than {_LARGEST_CONSTANT:,} elements, which would be made while compiling")


def has_converter(domain: str, operator: str) -> bool:
    """Return whether there is a converter, of ours or TVM's, that may take nodes of `operator`."""
    return converter_of(domain, operator) is not None or tvm_converts(domain, operator)


def is_native(proto: NodeProto, scope: Scope) -> bool:
    """Return whether all that `proto` reads are tensors of native dtypes and static shapes."""
    kinds = [scope.types.get(name) for name in proto.input if name]
    native = NATIVE_DTYPES | ({TensorProto.FLOAT8E8M0} if proto.op_type == "Cast" else frozenset())
    return all(
        kind is not None and static_shape(kind) is not None and kind.tensor_type.elem_type in native for kind in kinds
    )


def _empty_tensors(outputs: Sequence[TypeProto | None]) -> list[Expr]:
    """Return zeros if no output has any element: whatever the operator, there is nothing to compute."""
    shapes = [static_shape(kind) for kind in outputs]
    if any(shape is None or 0 not in shape for shape in shapes):
        return []
    return [
        relax.op.zeros(shape, dtype_name(kind.tensor_type.elem_type))
        for shape, kind in zip(shapes, outputs, strict=True)
        if kind is not None and shape is not None
    ]


def _first_that_takes(node: Node) -> Sequence[Expr]:
    ours = converter_of(node.proto.domain, node.op)
    reason = ""
    for convert in ([ours] if ours else []) + [convert_with_tvm]:
        try:
            result = convert(node)
            results = list(result) if isinstance(result, (list, tuple)) else [result]
            return [_conform(expr, kind, node) for expr, kind in zip(results, _asked(node, results), strict=True)]
        except Decline as decline:
            reason = reason or str(decline)
        except (FusionError, NotATensor, MemoryError):
            raise
        except Exception as error:  # TVM raises whatever its checks raise; none of them may end the import
            reason = reason or f"{node.op} failed to convert: {last_line(error)}"
    raise Decline(reason)


def _asked(node: Node, results: Sequence[Expr]) -> list[TypeProto | None]:
    needed = sum(1 for name in node.proto.output if name)
    if len(results) < needed:
        raise Decline(f"the converter gives {len(results)} of {needed} outputs")
    return [node.outputs[i] if i < len(node.outputs) else None for i in range(len(results))]


def _conform(expr: Expr, kind: TypeProto | None, node: Node) -> Expr:
    """Return `expr` with the static shape of `kind`; declines where the types contradict."""
    expr = node.builder.normalize(expr)
    if kind is None:
        return expr
    if not isinstance(expr.ty, relax.TensorType):
        raise Decline("the result is no tensor")
    element = kind.tensor_type.elem_type
    wanted = dtype_name(element) if element in NATIVE_DTYPES else "a native one"
    if str(expr.ty.dtype) != wanted:
        raise Decline(f"the result has dtype {expr.ty.dtype}, not {wanted}")
    shape = static_shape(kind)
    have = _static_relax_shape(expr)
    if shape is None:
        if have is None and node.op in _DATA_DEPENDENT:
            return expr
        if have is None:
            raise Decline("the output shape depends on data")
        kind.tensor_type.shape.Clear()
        for dim in have:
            kind.tensor_type.shape.dim.add().dim_value = dim
        return expr
    if have == shape:
        return expr
    if have is not None:
        raise Decline(f"the result has shape {have}, not {shape}")
    return node.builder.match_cast(node.emit(expr), relax.TensorType(shape, expr.ty.dtype))


def _static_relax_shape(expr: Expr) -> tuple[int, ...] | None:
    dims = expr.ty.shape
    if not isinstance(dims, relax.ShapeExpr):
        return None
    values = [int(dim.value) for dim in dims if isinstance(dim, tvm.tirx.IntImm)]
    return tuple(values) if len(values) == len(dims) else None


def _type_of(expr: Expr) -> TypeProto | None:
    """Return the type of a result of which ONNX infers none: its inference fails, or the operator is none of ONNX's."""
    shape = _static_relax_shape(expr) if isinstance(expr.ty, relax.TensorType) and expr.ty.dtype is not None else None
    return None if shape is None else type_of_spec(TensorSpec("", shape, str(expr.ty.dtype)))


def _bind(name: str, expr: Expr, builder: BlockBuilder) -> Expr:
    if isinstance(expr, relax.Var | tvm.ir.GenericConst):
        return expr
    return builder.emit(expr, name_hint=identifier(name))
