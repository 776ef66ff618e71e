"""Evaluates nodes whose inputs are all constants with onnx's reference implementation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache

import numpy as np
import onnx
from onnx import TensorProto, TypeProto, numpy_helper
from onnx.reference import ReferenceEvaluator

from fusion.frontends.onnx.alike import Findings
from fusion.frontends.onnx.fold_cost import cost_of
from fusion.frontends.onnx.fold_exceptions import computed_otherwise
from fusion.frontends.onnx.fold_operators import OPERATORS
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import HALVES, dtype_name, is_tensor, known_dims
from fusion.tensors import numpy_dtype

_KEPT = 512
"""Evaluators that are kept: the layers of a model have the same nodes but for their names, and one with open dimensions
is imported ten times or more. Making one takes ten times as long as running it."""


def fold(
    node: onnx.NodeProto,
    opset: int,
    scope: ValueScope,
    outputs: dict[str, TypeProto],
    findings: Findings | None = None,
) -> bool:
    """Record the outputs of `node` as constants of `scope` if they are known before the run; return whether they are.

    What is computed is added to the `findings` of nodes like it, or taken from there.
    """
    if (
        node.op_type in ("Shape", "Size")
        and not node.domain
        and node.input[0] not in scope.unsure
        and _fold_shape(node, scope)
    ):
        scope.sizes_read.note_size(node, scope.constants)
        return True
    if node.op_type == "Constant" and not node.domain and _fold_constant(node, scope, outputs):
        return True
    findings = findings or Findings()
    if not _foldable(node, opset, scope, outputs):
        return False
    findings.constants = findings.constants or _computed(node, opset, scope, outputs)
    if not findings.constants:
        return False
    scope.sizes_read.note(node, scope.array)
    for name, (tensor, array) in zip(filter(None, node.output), findings.constants, strict=True):
        scope.add_constant(name, tensor, array)
    return True


def _computed(
    node: onnx.NodeProto, opset: int, scope: ValueScope, outputs: dict[str, TypeProto]
) -> tuple[tuple[TensorProto, np.ndarray], ...]:
    """Return the constants that are the outputs of `node` which have a name; none where they cannot be computed, or are
    of other types."""
    try:
        found = _evaluate(node, opset, scope, outputs)
    except Exception:  # the reference implementation lacks operators and cases; the node is then computed at run time
        return ()
    arrays = {name: array for name, array in zip(node.output, found, strict=True) if name}
    if not all(isinstance(array, np.ndarray | np.generic) for array in arrays.values()):
        return ()
    tensors = {name: numpy_helper.from_array(np.asarray(array)) for name, array in arrays.items()}
    if any(
        name in outputs and tensor.data_type != outputs[name].tensor_type.elem_type for name, tensor in tensors.items()
    ):
        return ()
    return tuple((tensor, numpy_helper.to_array(tensor)) for tensor in tensors.values())


def _fold_shape(node: onnx.NodeProto, scope: ValueScope) -> bool:
    shape = known_dims(scope.types.get(node.input[0]))
    if shape is None:
        return False
    if node.op_type == "Size":
        value = np.asarray(math.prod(shape), dtype=np.int64)
    else:
        bounds = {a.name: int(a.i) for a in node.attribute}
        value = np.asarray(shape[slice(bounds.get("start", 0), bounds.get("end"))], dtype=np.int64)
    scope.add_constant(node.output[0], numpy_helper.from_array(value))
    return True


def _fold_constant(node: onnx.NodeProto, scope: ValueScope, outputs: dict[str, TypeProto]) -> bool:
    """Take the tensor that a Constant brings as it is: it may be a weight."""
    if len(node.attribute) != 1 or node.attribute[0].name != "value" or not all(map(is_tensor, outputs.values())):
        return False
    tensor = node.attribute[0].t
    try:
        numpy_helper.to_array(tensor)
    except (ValueError, TypeError, KeyError):
        return False
    scope.add_constant(node.output[0], tensor)
    return True


def _foldable(node: onnx.NodeProto, opset: int, scope: ValueScope, outputs: dict[str, TypeProto]) -> bool:
    """Return whether `node` is known before the run, and computing it is in the budget, which then pays for it."""
    if node.domain or not all(name in scope.constants for name in node.input if name):
        return False
    if not all(map(is_tensor, outputs.values())):
        return False
    arrays = [scope.array(name) for name in node.input if name]
    cost = cost_of(node, arrays)
    if cost is not None and computed_otherwise(node, opset, arrays):
        return False
    names = (dtype_name(kind.tensor_type.elem_type) for kind in outputs.values())
    itemsize = max((numpy_dtype(name).itemsize for name in names), default=8)
    return cost is not None and scope.budget.take(cost, itemsize, sum(array.nbytes for array in arrays))


def _evaluate(
    node: onnx.NodeProto, opset: int, scope: ValueScope, outputs: dict[str, TypeProto]
) -> list[np.ndarray | None]:
    names = list(dict.fromkeys(name for name in node.input if name))
    arrays = {name: scope.array(name) for name in names}
    kinds = {name: scope.constants[name].data_type for name in names}
    half = node.op_type in _ROUNDS_INSIDE and bool(HALVES.intersection(kinds.values()))
    if half:
        for name in names:
            if kinds[name] in HALVES:
                kinds[name], arrays[name] = TensorProto.FLOAT, arrays[name].astype(np.float32)
    wanted = [name for name in node.output if name]
    places = {name: f"x{place}" for place, name in enumerate(names)}
    alike = _without_names(node, places)
    evaluator = _evaluator(alike.SerializeToString(deterministic=True), tuple(kinds.values()), opset)
    with np.errstate(all="ignore"):
        found = evaluator.run(None, {places[name]: array for name, array in arrays.items()})
        results = dict(zip(wanted, found, strict=True))
        if half:
            results = {name: _as_declared(array, outputs[name]) for name, array in results.items()}
    return [results.get(name) for name in node.output]


def _without_names(node: onnx.NodeProto, places: Mapping[str, str]) -> onnx.NodeProto:
    """Return `node` with names that say only which of its inputs are the same, and which outputs are wanted."""
    inputs = [places.get(name, "") for name in node.input]
    outputs = [name and f"y{place}" for place, name in enumerate(node.output)]
    return onnx.NodeProto(op_type=node.op_type, input=inputs, output=outputs, attribute=node.attribute)


@lru_cache(maxsize=_KEPT)
def _evaluator(data: bytes, kinds: tuple[int, ...], opset: int) -> ReferenceEvaluator:
    """Return what evaluates the node of these bytes, whose inputs, each counted once, are tensors of `kinds`."""
    node = onnx.NodeProto.FromString(data)
    names = dict.fromkeys(name for name in node.input if name)
    inputs = [onnx.helper.make_tensor_value_info(name, kind, None) for name, kind in zip(names, kinds, strict=True)]
    wanted = [name for name in node.output if name]
    undefined = [onnx.helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in wanted]
    graph = onnx.helper.make_graph([node], "fold", inputs, undefined)
    model = onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", opset)])
    return ReferenceEvaluator(model, new_ops=list(OPERATORS))


_ROUNDS_INSIDE = frozenset(
    {
        "Celu", "CumSum", "DequantizeLinear", "Elu", "Erf", "Gelu", "Gemm", "HardSigmoid", "HardSwish", "LogSoftmax",
        "MatMul", "Mean", "Pow", "QuantizeLinear", "Range", "ReduceL1", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp",
        "ReduceMean", "ReduceProd", "ReduceSum", "ReduceSumSquare", "Selu", "Sigmoid", "Softmax", "Softplus",
        "Softsign", "Sum",
    }
)  # fmt: skip
"""Operators of several steps, which the reference implementation rounds to half precision one by one: there a sum of
300 ones in bfloat16 is 256. Runs compute them in float32, and so does it once it is given that."""


def _as_declared(array: np.ndarray, kind: TypeProto) -> np.ndarray:
    if array.dtype != np.float32 or kind.tensor_type.elem_type not in HALVES:
        return array
    return array.astype(numpy_dtype(dtype_name(kind.tensor_type.elem_type)))
