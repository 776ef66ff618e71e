"""Evaluates nodes whose inputs are all constants with onnx's reference implementation."""

from __future__ import annotations

import math

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from fusion.frontends.onnx.scope import Scope
from fusion.frontends.onnx.types import is_tensor, static_shape

# Operators whose result differs from call to call.
_RANDOM = frozenset(
    {"RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"}
)
# A folded value may outgrow its operands by this much: beyond it, a weight would be larger than the code that makes it.
_MAX_GROWTH_BYTES = 16 << 20


def fold(node: onnx.NodeProto, opset: int, scope: Scope, outputs: dict[str, TypeProto]) -> bool:
    """Record the outputs of `node` as constants of `scope` if they are known before the run; return whether they
    are."""
    if node.op_type in ("Shape", "Size") and not node.domain and _fold_shape(node, scope):
        return True
    if not _foldable(node, scope, outputs):
        return False
    try:
        arrays = _evaluate(node, opset, scope)
    except Exception:  # the reference implementation lacks operators and cases; the node is then computed at run time
        return False
    tensors = [(name, array) for name, array in zip(node.output, arrays, strict=True) if name]
    if not all(isinstance(array, np.ndarray | np.generic) for _, array in tensors):
        return False
    protos = {name: numpy_helper.from_array(np.asarray(array)) for name, array in tensors}
    if any(
        name in outputs and proto.data_type != outputs[name].tensor_type.elem_type for name, proto in protos.items()
    ):
        return False
    for name, proto in protos.items():
        scope.add_constant(name, proto)
    return True


def _fold_shape(node: onnx.NodeProto, scope: Scope) -> bool:
    shape = static_shape(scope.types.get(node.input[0]))
    if shape is None:
        return False
    if node.op_type == "Size":
        value = np.asarray(math.prod(shape), dtype=np.int64)
    else:
        bounds = {a.name: int(a.i) for a in node.attribute}
        value = np.asarray(shape[slice(bounds.get("start", 0), bounds.get("end"))], dtype=np.int64)
    scope.add_constant(node.output[0], numpy_helper.from_array(value))
    return True


def _foldable(node: onnx.NodeProto, scope: Scope, outputs: dict[str, TypeProto]) -> bool:
    if node.op_type in _RANDOM or node.domain not in ("", "ai.onnx") or any(a.HasField("g") for a in node.attribute):
        return False
    if not all(name in scope.constants for name in node.input if name):
        return False
    if node.op_type in ("Div", "Mod") and _divides_by_zero(scope.array(node.input[1])):
        return False  # NumPy says 0, every run is an error
    held = sum(scope.array(name).nbytes for name in node.input if name)
    return all(is_tensor(kind) and _bytes(kind) <= held + _MAX_GROWTH_BYTES for kind in outputs.values())


def _divides_by_zero(divisor: np.ndarray) -> bool:
    return divisor.dtype.kind in "iu" and not divisor.all()


def _bytes(kind: TypeProto) -> int:
    # Eight bytes an element bounds every dtype; a shape that only evaluation tells is small in practice.
    return 8 * math.prod(static_shape(kind) or (0,))


def _evaluate(node: onnx.NodeProto, opset: int, scope: Scope) -> list[np.ndarray | None]:
    names = list(dict.fromkeys(name for name in node.input if name))
    inputs = [onnx.helper.make_tensor_value_info(name, scope.constants[name].data_type, None) for name in names]
    wanted = [name for name in node.output if name]
    outputs = [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in wanted]
    graph = onnx.helper.make_graph([node], "fold", inputs, outputs)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    with np.errstate(all="ignore"):
        results = ReferenceEvaluator(model).run(None, {name: scope.array(name) for name in names})
    by_name = dict(zip(wanted, results, strict=True))
    return [by_name.get(name) for name in node.output]
