"""Compute operators whose operands are all known."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np
import numpy.typing as npt
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name, data_of
from fusion.memory import usable_memory
from fusion.passes.rebuild import constant, rebuild_main
from fusion.shapes import known_extents
from fusion.tensors import tensor_bytes

Array = npt.NDArray[Any]
Evaluate = Callable[[relax.Call, Sequence[Array]], Array]


@dataclass(frozen=True)
class FoldConstants:
    """`y = R.reshape(R.const(w), s)`  ->  `R.const(w.reshape(s))`, for the operators that rearrange or combine weights.

    Frontends fold what their formats can express; these are left by the rewriting of single operators.
    """

    name: str = "fold_constants"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        known: dict[relax.Var, GenericConst] = {}
        left = min(_MOST_BYTES, usable_memory() // 4)

        def visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
            nonlocal left
            folded = _fold(builder, value, known, left)
            if folded is None:
                return value
            if folded is not value:
                left -= _size_of(folded)
            made = builder.emit(folded, var.name)
            known[made] = folded
            return made

        return relax.transform.CanonicalizeBindings()(rebuild_main(mod, visit))


def _fold(
    builder: relax.BlockBuilder, value: relax.Expr, known: dict[relax.Var, GenericConst], left: int
) -> GenericConst | None:
    """Return the value of `value`, or None where it is not known, or has more than `left` bytes."""
    if isinstance(value, GenericConst):
        return value
    if call_name(value) == "shape_to_tensor":
        return _extents(builder, data_of(value))
    evaluate = _EVALUATE.get(call_name(value))
    if evaluate is None:
        return None
    tensors = [known.get(arg, arg) if isinstance(arg, relax.Var) else arg for arg in value.args]
    operands = [tensor for tensor in tensors if not isinstance(tensor, relax.ShapeExpr) and not _are_numbers(tensor)]
    if not all(isinstance(operand, GenericConst) and _is_plain(operand) for operand in operands):
        return None
    arrays = [operand.value.numpy() for operand in operands]
    if not has_value(value, arrays):
        return None
    result = builder.normalize(value).ty
    shape = known_extents(result.shape)
    if shape is None:  # axes that only the run knows, of a reshape
        return None
    if prod(shape) > max(_LARGE, *(4 * array.size for array in arrays)):
        return None
    if tensor_bytes(shape, str(result.dtype.dtype)) > left:
        return None
    with np.errstate(all="ignore"):
        folded = evaluate(value, arrays)
    return constant(folded.astype(str(result.dtype.dtype), copy=False).reshape(shape))


INDEXING = ("take", "gather_elements")
"""Operators that read at positions which have to be inside an axis."""


def has_value(call: relax.Call, operands: Sequence[Array]) -> bool:
    """Return whether runs give a result: they fail where an integer is divided by zero or an index is outside."""
    if call_name(call) == "divide" and operands[1].dtype.kind in "iu":
        return bool(operands[1].all())
    if call_name(call) not in INDEXING or str(getattr(call.attrs, "mode", "fast")) != "fast":
        return True
    size = operands[0].size if call.attrs.axis is None else operands[0].shape[int(call.attrs.axis)]
    return bool(((operands[1] >= -size) & (operands[1] < size)).all())


_LARGE = 1 << 16
"""Elements of a result that broadcasting may make out of nothing; a larger one is computed by every run."""


_MOST_BYTES = 4 << 30
"""Of all results together: a chain of products of vectors grows fourfold with every one."""


def _size_of(value: GenericConst) -> int:
    return tensor_bytes(tuple(int(extent) for extent in value.value.shape), str(value.value.dtype))


def _extents(builder: relax.BlockBuilder, shape: relax.Expr) -> GenericConst | None:
    """Return the extents of a tensor whose shape is known, as `shape_to_tensor(shape_of(x))` does."""
    source = builder.lookup_binding(shape) if isinstance(shape, relax.Var) else shape
    if call_name(source) == "shape_of":
        source = data_of(source).ty.shape
    extents = known_extents(source)
    return None if extents is None else constant(np.array(extents, "int64"))


def _are_numbers(arg: relax.Expr) -> bool:
    """Return whether an argument is a tuple of known integers, such as the ends of a slice."""
    return isinstance(arg, relax.Tuple) and all(isinstance(item, tvm.tirx.IntImm) for item in arg.fields)


def _is_plain(operand: GenericConst) -> bool:
    """Return whether numpy has the constant's type; bfloat16, float8 and int4 are left alone."""
    return isinstance(operand.value, tvm.runtime.Tensor) and str(operand.ty.dtype.dtype) in _NUMPY_TYPES


_NUMPY_TYPES = {
    "bool",
    "float16",
    "float32",
    "float64",
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
}


def _reshaped(call: relax.Call, operands: Sequence[Array]) -> Array:
    return operands[0]  # the caller gives every result its shape


def _permuted(call: relax.Call, operands: Sequence[Array]) -> Array:
    axes = call.attrs.axes
    return np.transpose(operands[0], None if axes is None else [int(axis) for axis in axes])


def _sliced(call: relax.Call, operands: Sequence[Array]) -> Array:
    axes, begin, end, *strides = ([int(item) for item in arg.fields] for arg in call.args[1:])
    parts = [slice(None)] * operands[0].ndim
    for axis, *part in zip(axes, begin, end, *strides, strict=True):
        parts[axis] = slice(*part)
    return operands[0][tuple(parts)]


def _quotient(a: Array, b: Array) -> Array:
    """Return a / b, of integers rounded towards zero; the lowest one divided by -1 is itself."""
    with np.errstate(all="ignore"):
        if a.dtype.kind == "f":
            return np.asarray(a / b)
        return np.asarray((a - np.fmod(a, b)) // b)


def _taken(call: relax.Call, operands: Sequence[Array]) -> Array:
    """In mode "fast" indices are inside, and negative ones count from the end."""
    data, indices = operands
    axis = None if call.attrs.axis is None else int(call.attrs.axis)
    return np.asarray(np.take(data, indices, axis, mode="clip" if str(call.attrs.mode) == "clip" else "wrap"))


def _gathered(call: relax.Call, operands: Sequence[Array]) -> Array:
    """Indices of fewer elements than the data along other axes are into its first ones."""
    data, indices = operands
    axis = int(call.attrs.axis) % data.ndim
    near = tuple(slice(None if at == axis else size) for at, size in enumerate(indices.shape))
    return np.take_along_axis(data[near], indices, axis)


def _combine(function: Callable[..., Array]) -> Evaluate:
    return lambda call, operands: function(*operands)


_EVALUATE: dict[str, Evaluate] = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten"), _reshaped),
    "permute_dims": _permuted,
    "strided_slice": _sliced,
    "astype": _reshaped,
    "add": _combine(np.add),
    "subtract": _combine(np.subtract),
    "multiply": _combine(np.multiply),
    "divide": _combine(_quotient),
    "sqrt": _combine(np.sqrt),
    "less": _combine(np.less),
    "where": _combine(np.where),
    "take": _taken,
    "gather_elements": _gathered,
    "negative": _combine(np.negative),
}
