"""Converts one node to Relax and checks the result against the types that ONNX infers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import tvm
from onnx import NodeProto, TensorProto, TypeProto
from tvm import relax
from tvm.relax import BlockBuilder, Expr
from tvm_ffi import structural_equal

from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.failures import last_line
from fusion.frontends.onnx.alike import Findings
from fusion.frontends.onnx.claims import convert_as_claimed, is_told_twice
from fusion.frontends.onnx.fallback import NotATensor
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.pool_windows import refuse_pool_without_places
from fusion.frontends.onnx.registry import Converter, converter_of
from fusion.frontends.onnx.scope import ValueScope, identifier
from fusion.frontends.onnx.tvm_converters import convert_with_tvm, tvm_converts
from fusion.frontends.onnx.types import NATIVE_DTYPES, dtype_name, is_tensor, known_dims, type_name, type_of_spec
from fusion.frontends.onnx.windows import refuse_small_image
from fusion.shapes import known_shape
from fusion.signature import TensorSpec

_UNKNOWN = TypeProto()
_CASTABLE_DTYPES = NATIVE_DTYPES | {TensorProto.FLOAT8E8M0}
# Operators that read nothing of their input but its shape, so that it is not computed.
_READ_SHAPES = frozenset({"EyeLike", "Shape", "Size"})
# Operators whose output shape no constant could tell; only fallback nodes and the model's output read such values.
_DATA_DEPENDENT = frozenset({"Compress", "NonZero", "Unique"})
# Operators of which ONNX Runtime checks operands, be there anything to compute or not.
_CHECKED = frozenset(
    {"ArrayFeatureExtractor", "Div", "Dropout", "Gather", "Mod", "ReverseSequence", "RoiAlign", "ScatterND", "Slice"}
)


def _is_checked(node: Node) -> bool:
    return node.op in _CHECKED and not all(node.is_const(index) for index in range(1, len(node.proto.input)))


def convert_node(
    proto: NodeProto, opset: int, scope: ValueScope, builder: BlockBuilder, findings: Findings | None = None
) -> None:
    """Compute the outputs of `proto` in Relax and record them in `scope`; where `findings` tell that a node like it was
    converted, its operands are not looked at again.

    Raises:
        Declined: No converter takes the node; the text says why.
        ShapeError: Its attributes or inputs contradict each other.
    """
    outputs = tuple(_vouched_for(name, scope) for name in proto.output)
    if proto.op_type in _READ_SHAPES and proto.input[0] in scope.unsure:
        raise Declined("only the model's declaration tells the shape of its input")
    node = Node(proto, opset, outputs, scope, builder)
    claims = tuple(scope.types[name] if name in scope.claimed else None for name in proto.output)
    findings = findings or Findings()
    if not findings.results:
        why = _why_not_native(proto, scope)
        if why:
            raise Declined(why)
        refuse_small_image(node)
        refuse_pool_without_places(node)
        _refuse_large_constant(node, claims)
    empty = [] if findings.results or is_told_twice(node) or _is_checked(node) else _empty_tensors(outputs)
    results = empty or _first_that_takes(node, claims, findings)
    for name, kind, result in zip(proto.output, outputs, results, strict=False):
        known = kind or _type_of(result)
        if name and known is not None:
            scope.types[name] = known
            scope.claimed.discard(name)
            scope.exprs[name] = _bind(name, result, builder)


_OF_CONSTANTS = frozenset({"ConstantOfShape", "EyeLike", "OneHot", "Range"})
"""Operators whose converters make constants of their results' size, or of a part of it."""
_LARGEST_CONSTANT = 64 << 20
"""Elements."""


def _refuse_large_constant(node: Node, claims: Sequence[TypeProto | None]) -> None:
    shape = known_dims(claims[0] or node.outputs[0]) if node.op in _OF_CONSTANTS else None
    if math.prod(shape or ()) > _LARGEST_CONSTANT:
        raise Declined(f"its result has more than {_LARGEST_CONSTANT:,} elements, which would be made while compiling")


def has_converter(domain: str, operator: str) -> bool:
    """Return whether there is a converter, of ours or TVM's, that may take nodes of `operator`."""
    return converter_of(domain, operator) is not None or tvm_converts(domain, operator)


def _vouched_for(name: str, scope: ValueScope) -> TypeProto | None:
    """Return the type of a value as far as it does not rest on the model's declaration alone."""
    kind = scope.types.get(name) if name else None
    if kind is None or name not in scope.claimed:
        return kind
    open_kind = TypeProto()
    open_kind.CopyFrom(kind)
    open_kind.tensor_type.ClearField("shape")
    return open_kind


def is_native(proto: NodeProto, scope: ValueScope) -> bool:
    """Return whether all that `proto` reads are tensors of native dtypes and static shapes."""
    return not _why_not_native(proto, scope)


def _why_not_native(proto: NodeProto, scope: ValueScope) -> str:
    """Return which of the values that `proto` reads is no tensor of a native dtype and a static shape, and why; "" if
    all are."""
    native = _CASTABLE_DTYPES if proto.op_type == "Cast" else NATIVE_DTYPES
    for name in filter(None, proto.input):
        shape, kind = scope.shape(name), scope.types.get(name, _UNKNOWN)
        if shape is None and kind.WhichOneof("value") in (None, "tensor_type"):
            maker = scope.opened_by.get(name)
            return f"only a run knows the shape of its input {name!r}" + (f", because of {maker}" if maker else "")
        if shape is None or kind.tensor_type.elem_type not in native:
            return f"its input {name!r} is of {type_name(kind)}, which no kernel here reads"
    return ""


def _empty_tensors(outputs: Sequence[TypeProto | None]) -> list[Expr]:
    """Return zeros if no output has any element: whatever the operator, there is nothing to compute. Texts are none
    that a tensor of TVM holds."""
    shapes = [known_dims(kind) for kind in outputs]
    if any(shape is None or 0 not in shape for shape in shapes) or not all(map(is_tensor, filter(None, outputs))):
        return []
    return [
        relax.op.zeros(shape, dtype_name(kind.tensor_type.elem_type))
        for shape, kind in zip(shapes, outputs, strict=True)
        if kind is not None and shape is not None
    ]


def _first_that_takes(node: Node, claims: Sequence[TypeProto | None], findings: Findings) -> Sequence[Expr]:
    ours = converter_of(node.proto.domain, node.op)
    converters: list[Converter] = [*([ours] if ours else []), convert_with_tvm]
    if ours and (any(claims) or is_told_twice(node)):
        types = [claim or kind for claim, kind in zip(claims, node.outputs, strict=True)]
        first = 1 if any(claims) else 0
        empty = [] if _is_checked(node) else _empty_tensors(types)
        converters[first:1] = [lambda n: convert_as_claimed(n, types, lambda n: empty or ours(n))]
    reason = ""
    for convert in converters:
        try:
            result = convert(node)
            made = result if isinstance(result, (list, tuple)) else [result]
            results = [node.builder.normalize(expr) for expr in made]
            if findings.results and _are_of(results, findings.results):
                return results
            asked = _asked(node, results)
            known = [claims[at] if at < len(claims) else None for at in range(len(results))]
            triples = zip(results, asked, known, strict=True)
            conformed = [_conform(expr, kind, node, claim) for expr, kind, claim in triples]
            findings.results = tuple(expr.ty for expr in conformed) if findings.types else ()
            return conformed
        except Declined as decline:
            reason = reason or str(decline)
        except (FusionError, NotATensor, MemoryError):
            raise
        except Exception as error:  # TVM raises whatever its checks raise; none of them may end the import
            reason = reason or f"{node.op} failed to convert: {last_line(error)}"
    raise Declined(reason)


def _are_of(results: Sequence[Expr], types: Sequence[tvm.ir.Type]) -> bool:
    """Return whether these are the types of the results."""
    return len(results) == len(types) and all(
        structural_equal(expr.ty, kind) for expr, kind in zip(results, types, strict=True)
    )


def _asked(node: Node, results: Sequence[Expr]) -> list[TypeProto | None]:
    needed = sum(1 for name in node.proto.output if name)
    if len(results) < needed:
        raise Declined(f"the converter gives {len(results)} of {needed} outputs")
    return [node.outputs[i] if i < len(node.outputs) else None for i in range(len(results))]


def _conform(expr: Expr, kind: TypeProto | None, node: Node, claim: TypeProto | None) -> Expr:
    """Return `expr` with the static shape of `kind`, else with that of `claim`, which the run compares; declines where
    the types contradict."""
    if kind is None:
        return expr
    _refuse_other_dtype(expr, kind)
    shape, have = known_dims(kind), known_shape(expr)
    if shape is None:
        if have is None and node.op in _DATA_DEPENDENT:
            return expr
        shape = known_dims(claim) if have is None else have
        if shape is None:
            raise Declined("the output shape depends on data")
        kind.tensor_type.shape.Clear()
        for dim in shape:
            kind.tensor_type.shape.dim.add().dim_value = dim
    if have is not None and have != shape:
        raise Declined(f"the result has shape {have}, not {shape}")
    if have is not None:
        return expr
    return node.builder.match_cast(node.emit(expr), relax.TensorType(shape, expr.ty.dtype))


def _refuse_other_dtype(expr: Expr, kind: TypeProto) -> None:
    if not isinstance(expr.ty, relax.TensorType):
        raise Declined("the result is no tensor")
    element = kind.tensor_type.elem_type
    wanted = dtype_name(element) if element in NATIVE_DTYPES else "a native one"
    if str(expr.ty.dtype) != wanted:
        raise Declined(f"the result has dtype {expr.ty.dtype}, not {wanted}")


def _type_of(expr: Expr) -> TypeProto | None:
    """Return the type of a result of which ONNX infers none: its inference fails, or the operator is none of ONNX's."""
    shape = known_shape(expr)
    return None if shape is None or expr.ty.dtype is None else type_of_spec(TensorSpec("", shape, str(expr.ty.dtype)))


def _bind(name: str, expr: Expr, builder: BlockBuilder) -> Expr:
    if isinstance(expr, relax.Var | tvm.ir.GenericConst):
        return expr
    return builder.emit(expr, name_hint=identifier(name))
