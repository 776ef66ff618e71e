"""What it takes to compute a node whose inputs are known, told from them before anything is computed.

Only operators with a row here are computed while compiling. Left out are those whose time or memory their inputs' and
results' sizes do not bound: windows and their padding, loops, regular expressions, recurrent layers, random numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np
import onnx

from fusion.system.memory import usable_memory

Arrays = Sequence[np.ndarray]
Attributes = dict[str, Any]
Count = Callable[[Arrays, Attributes], int]

_BYTES_FOR_ALL = 256 << 20
_BYTES_FOR_A_BYTE = 16
"""Of weights: an int8 weight that is dequantised, turned, and split has 12 bytes of results."""
_NANOSECONDS_FOR_ALL = 20 * 10**9
_GROWTH = 16 << 20
"""Bytes by which a result may outgrow what it is made of: beyond it, a weight would be larger than the code that makes
it."""
# Measured on one core, rounded up: NumPy's loops over an element, those at places that indices say, and the reference
# implementation's own in Python.
_FAST, _INDEXED, _SLOW = 5, 100, 5000
_NODE = 200_000
"""Nanoseconds to set up the reference implementation."""
_BLAS, _LOOPS = 0.1, 12.0
"""Nanoseconds for a multiplication of a product: of float32 and float64, where NumPy asks a BLAS, and of all others:
float16 takes 10, integers 2."""


@dataclass(frozen=True)
class FoldCost:
    """What a node would take: elements of its results together, and nanoseconds."""

    elements: int
    nanoseconds: int


class Budget:
    """What may still be spent on computing while one model is compiled.

    Args:
        weights: Bytes of the model's weights.
    """

    def __init__(self, weights: int = 0) -> None:
        self._bytes = min(_BYTES_FOR_ALL + _BYTES_FOR_A_BYTE * weights, usable_memory() // 4)
        self._nanoseconds = _NANOSECONDS_FOR_ALL

    def take(self, cost: FoldCost, itemsize: int, held: int) -> bool:
        """Spend `cost`, of a node that reads `held` bytes and makes elements of `itemsize`; return whether it may."""
        size = cost.elements * itemsize
        if size > self._bytes or cost.nanoseconds > self._nanoseconds or size > held + _GROWTH:
            return False
        self._bytes -= size
        self._nanoseconds -= cost.nanoseconds
        return True


def cost_of(node: onnx.NodeProto, arrays: Arrays) -> FoldCost | None:
    """Return what computing `node` of `arrays`, its inputs without those left out, takes.

    None for an operator that is not computed while compiling, or where its inputs contradict each other.
    """
    row = _COSTS.get(node.op_type)
    if row is None or any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute):
        return None
    count, each = row
    attributes = {attribute.name: attribute for attribute in node.attribute}
    try:
        elements = count(arrays, attributes)
    except (ValueError, TypeError, IndexError, KeyError, OverflowError, ZeroDivisionError):
        return None
    if elements < 0:
        return None
    read = sum(array.size for array in arrays)
    multiplying = _multiplying(arrays, attributes) if count is _product else 0
    return FoldCost(elements, _NODE + each * (elements + read) + multiplying)


def _broadcast(arrays: Arrays, attributes: Attributes) -> int:
    return math.prod(np.broadcast_shapes(*(array.shape for array in arrays)))


def _first(arrays: Arrays, attributes: Attributes) -> int:
    return arrays[0].size


def _one(arrays: Arrays, attributes: Attributes) -> int:
    return 1


def _twice(arrays: Arrays, attributes: Attributes) -> int:
    return 2 * arrays[0].size


def _all(arrays: Arrays, attributes: Attributes) -> int:
    return sum(array.size for array in arrays)


def _parts(arrays: Arrays, attributes: Attributes) -> int:
    # The reference implementation makes a list of as many parts as the attribute says, whatever there is to split.
    count = attributes["num_outputs"].i if "num_outputs" in attributes else 0
    return max(arrays[0].size, count)


def _positions(arrays: Arrays, attributes: Attributes) -> int:
    return max(1, arrays[0].ndim) * arrays[0].size


def _constant(arrays: Arrays, attributes: Attributes) -> int:
    ((name, attribute),) = attributes.items()
    if name == "sparse_value":
        return math.prod(attribute.sparse_tensor.dims)
    return max(1, len(attribute.floats), len(attribute.ints))


def _filled(arrays: Arrays, attributes: Attributes) -> int:
    return math.prod(_ints(arrays[0]))


def _expanded(arrays: Arrays, attributes: Attributes) -> int:
    shape, target = arrays[0].shape[::-1], _ints(arrays[1])[::-1]
    return math.prod(max(pair) for pair in zip_longest(shape, target, fillvalue=1))


def _tiled(arrays: Arrays, attributes: Attributes) -> int:
    return math.prod((arrays[0].size, *_ints(arrays[1])))


def _counted(arrays: Arrays, attributes: Attributes) -> int:
    start, limit, step = (float(array.item()) for array in arrays)
    return max(0, math.ceil((limit - start) / step))


def _one_hot(arrays: Arrays, attributes: Attributes) -> int:
    return int(arrays[0].size * int(arrays[1].item()))


def _taken(arrays: Arrays, attributes: Attributes) -> int:
    data, indices = arrays
    axis = attributes["axis"].i if "axis" in attributes else 0
    return math.prod((indices.size, *data.shape)) // int(data.shape[axis])


def _taken_by_rows(arrays: Arrays, attributes: Attributes) -> int:
    data, indices = arrays
    batch = attributes["batch_dims"].i if "batch_dims" in attributes else 0
    return math.prod((*indices.shape[:-1], *data.shape[batch + indices.shape[-1] :]))


def _second(arrays: Arrays, attributes: Attributes) -> int:
    return arrays[1].size


def _product(arrays: Arrays, attributes: Attributes) -> int:
    """The elements of a product, of matrices in either order of their axes where that is an attribute."""
    left, right = _factors(arrays, attributes)
    rows, columns = left[-2:-1], right[-1:] if len(right) > 1 else ()
    return math.prod((*np.broadcast_shapes(left[:-2], right[:-2]), *rows, *columns))


def _multiplying(arrays: Arrays, attributes: Attributes) -> int:
    """Nanoseconds that the multiplications of a product take."""
    left, _ = _factors(arrays, attributes)
    is_float = all(array.dtype in (np.float32, np.float64) for array in arrays[:2])
    return math.ceil(_product(arrays, attributes) * left[-1] * (_BLAS if is_float else _LOOPS))


def _factors(arrays: Arrays, attributes: Attributes) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the shapes of both factors as they are multiplied."""
    left, right = (array.shape for array in arrays[:2])
    left = left[::-1] if "transA" in attributes and attributes["transA"].i else left
    right = right[::-1] if "transB" in attributes and attributes["transB"].i else right
    if left[-1] != (right[-2] if len(right) > 1 else right[-1]):
        raise ValueError(f"a product of {left} and {right}")
    return left, right


def _ints(array: np.ndarray) -> list[int]:
    return [int(item) for item in array.reshape(-1)]


def _rows(each: int, count: Count, operators: str) -> dict[str, tuple[Count, int]]:
    return dict.fromkeys(operators.split(), (count, each))


_COSTS: dict[str, tuple[Count, int]] = {
    **_rows(_FAST, _broadcast, """Add Sub Mul Div Mod Pow And Or Xor Equal Less LessOrEqual Greater GreaterOrEqual
        BitwiseAnd BitwiseOr BitwiseXor BitShift Max Min Mean Sum Where PRelu"""),
    **_rows(_FAST, _first, """Abs Acos Acosh Asin Asinh Atan Atanh BitwiseNot Cast CastLike Ceil Celu Clip Cos Cosh Elu
        Exp Floor HardSigmoid HardSwish Identity IsInf IsNaN LeakyRelu Log LogSoftmax Neg Not Reciprocal Relu Round Selu
        Shrink Sigmoid Sign Sin Sinh Softmax Softplus Softsign Sqrt Tan Tanh ThresholdedRelu CumSum"""),
    **_rows(_FAST, _first, """Compress DepthToSpace Flatten Reshape Slice SpaceToDepth Squeeze Transpose Trilu
        Unsqueeze EyeLike Shape Size"""),
    **_rows(_FAST, _first, """ArgMax ArgMin ReduceL1 ReduceL2 ReduceLogSum ReduceLogSumExp ReduceMax ReduceMean
        ReduceMin ReduceProd ReduceSum ReduceSumSquare"""),
    **_rows(_FAST, _first, "QuantizeLinear DequantizeLinear DynamicQuantizeLinear"),
    **_rows(_FAST, _one, "OptionalHasElement"),
    **_rows(_FAST, _all, "Concat"),
    **_rows(_FAST, _parts, "Split"),
    **_rows(_FAST, _positions, "NonZero"),
    **_rows(_FAST, _constant, "Constant"),
    **_rows(_FAST, _filled, "ConstantOfShape"),
    **_rows(_FAST, _expanded, "Expand"),
    **_rows(_FAST, _tiled, "Tile"),
    **_rows(_FAST, _counted, "Range"),
    **_rows(_FAST, _one_hot, "OneHot"),
    **_rows(_FAST, _taken, "Gather"),
    **_rows(_FAST * 4, _first, "BatchNormalization InstanceNormalization LayerNormalization"),
    **_rows(_INDEXED, _first, "ScatterElements ScatterND"),
    **_rows(_SLOW, _first, "Erf Gelu"),
    **_rows(_SLOW, _twice, "TopK Unique"),
    **_rows(_SLOW, _second, "GatherElements"),
    **_rows(_SLOW, _taken_by_rows, "GatherND"),
    **_rows(_FAST, _product, "MatMul MatMulInteger Gemm"),
}  # fmt: skip
"""Elements of the results of an operator, and nanoseconds for each of them and of its inputs."""
