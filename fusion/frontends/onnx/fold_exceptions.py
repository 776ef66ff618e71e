"""Nodes of known inputs that every run computes, as onnx's reference implementation makes something else of them than
ONNX Runtime and than our kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import ml_dtypes
import numpy as np
from onnx import NodeProto, TensorProto

Arrays = Sequence[np.ndarray]
Otherwise = Callable[[NodeProto, int, Arrays], bool]

_ALONG_ONE_AXIS = 13
"""Since this set Softmax is along one axis; before, over all from one on, which the reference does not know."""
_SMALL_INTEGERS = frozenset({TensorProto.INT4, TensorProto.UINT4, TensorProto.INT2, TensorProto.UINT2})
_WIDEST = 2.0**31
"""Quotients beyond it are no integers before they are cut off at the ends of a type."""


def computed_otherwise(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """Return whether the reference implementation makes something else of `node` of the standard operators, whose
    inputs but those left out are `arrays`."""
    try:
        return node.op_type in _OTHERWISE and _OTHERWISE[node.op_type](node, opset, arrays)
    except (ValueError, TypeError, IndexError):  # inputs that contradict each other
        return True


def _divides_by_zero(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """NumPy says 0, every run is an error."""
    return arrays[1].dtype.kind in "iu" and not arrays[1].all()


def _is_scalar(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """NumPy says that the places in a scalar have no axes, every run one."""
    return not arrays[0].ndim


def _in_float32(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """Runs compute in float32, whatever the dtype, the reference in that of the input."""
    return arrays[0].dtype != np.float32


def _not_float32(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """Of other types runs keep means and deviations in float32; of nothing there are none."""
    return not arrays[0].size or any(array.dtype != np.float32 for array in arrays)


_TRAINING_IS_SAID = 14
"""Since this set an attribute, 0 or 1, says whether BatchNormalization takes the moments of its input; before, the
reference always does, and for other numbers, too."""


def _normalised_otherwise(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    modes = [attribute.i for attribute in node.attribute if attribute.name == "training_mode"]
    return opset < _TRAINING_IS_SAID or any(mode not in (0, 1) for mode in modes) or _not_float32(node, opset, arrays)


def _over_several_axes(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    return opset < _ALONG_ONE_AXIS


def _starts_before_the_first(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """A negative step from before the first element meets it, in NumPy nothing."""
    given = dict(zip((index for index, name in enumerate(node.input) if name), arrays, strict=True))
    if 4 not in given:
        return False
    starts, steps = given[1].reshape(-1), given[4].reshape(-1)
    axes = given[3].reshape(-1) if 3 in given else range(len(starts))
    extents = [arrays[0].shape[axis] for axis in axes]
    return bool(((steps < 0) & (starts < np.negative(extents))).any())


def _index_outside(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """The reference takes it modulo the axis, every run is an error."""
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    size = arrays[0].shape[axis]
    return bool(((arrays[1] < -size) | (arrays[1] >= size)).any())


def _has_nan(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """NumPy's order of NaN is neither ONNX Runtime's nor ours."""
    return _is_float(arrays[0]) and bool(np.isnan(arrays[0]).any())


def _not_sorted(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """The reference sorts in any case, ONNX Runtime where `sorted` is 1, and no other number."""
    by_value = next((attribute.i for attribute in node.attribute if attribute.name == "sorted"), 1)
    return by_value != 1 or _has_nan(node, opset, arrays)


def _to_few_bits(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """The reference cuts the fraction off, and takes negative numbers for powers of two."""
    narrow = _SMALL_INTEGERS | {TensorProto.FLOAT8E8M0}
    return any(attribute.name == "to" and attribute.i in narrow for attribute in node.attribute)


def _quotient_overflows(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """The reference casts the quotient to int32 before it cuts it off."""
    largest = np.abs(arrays[0].astype(np.float64)).max(initial=0)
    scale = np.abs(arrays[1].astype(np.float64)).min(initial=1) if len(arrays) > 1 else 1.0
    return not largest < _WIDEST * scale


_NARROW = 10.0
"""Distance of two logarithms whose quotient every floating-point type has."""


def _logarithm_of_zero(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """The reference takes the logarithm of quotients that may be 0."""
    return _over_several_axes(node, opset, arrays) or not np.ptp(arrays[0].astype(np.float64)) < _NARROW


def _has_no_elements(node: NodeProto, opset: int, arrays: Arrays) -> bool:
    """NumPy divides by their number, and has no extremes of nothing."""
    return not arrays[0].size


def _sum_overflows(power: int) -> Otherwise:
    """The reference adds numbers, or their squares, in their own type; neither a mean nor a root is as large."""

    def overflows(node: NodeProto, opset: int, arrays: Arrays) -> bool:
        x = arrays[0]
        if _has_no_elements(node, opset, arrays):
            return True
        if x.dtype.kind not in "iuf":
            return False
        most = float(np.finfo(x.dtype).max if x.dtype.kind == "f" else np.iinfo(x.dtype).max)
        with np.errstate(over="ignore"):
            return not float((np.abs(x.astype(np.float64)) ** power).sum()) <= most

    return overflows


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.kind == "f" or (hasattr(ml_dtypes, array.dtype.name) and "int" not in array.dtype.name)


_OTHERWISE: Mapping[str, Otherwise] = {
    **dict.fromkeys(("ReduceL1", "ReduceLogSum", "ReduceLogSumExp", "ReduceMax", "ReduceMin"), _has_no_elements),
    **dict.fromkeys(("ReduceProd", "ReduceSum", "ReduceSumSquare"), _has_no_elements),
    "ArgMax": _has_nan,
    "ArgMin": _has_nan,
    "BatchNormalization": _normalised_otherwise,
    "Cast": _to_few_bits,
    "Div": _divides_by_zero,
    "DynamicQuantizeLinear": _quotient_overflows,
    "GatherElements": _index_outside,
    "InstanceNormalization": _not_float32,
    "LayerNormalization": _not_float32,
    "LogSoftmax": _logarithm_of_zero,
    "Mod": _divides_by_zero,
    "NonZero": _is_scalar,
    "QuantizeLinear": _quotient_overflows,
    "ReduceL2": _sum_overflows(2),
    "ReduceMean": _sum_overflows(1),
    "Shrink": _in_float32,
    "Slice": _starts_before_the_first,
    "Softmax": _over_several_axes,
    "TopK": _has_nan,
    "Unique": _not_sorted,
}
