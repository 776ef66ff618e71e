"""What Relax operators are of known operands, as NumPy computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax

Array = npt.NDArray[Any]
Evaluate = Callable[[relax.Call, Sequence[Array]], Array]


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


def _counted(call: relax.Call, operands: Sequence[Array]) -> Array:
    return np.arange(*(each.value for each in call.args), dtype=str(call.attrs.dtype))


def _filled(call: relax.Call, operands: Sequence[Array]) -> Array:
    (shape,) = (arg for arg in call.args if isinstance(arg, relax.ShapeExpr))
    return np.broadcast_to(operands[0], [int(extent) for extent in shape])


def _triangle(function: Callable[[Array, int], Array]) -> Evaluate:
    def cut(call: relax.Call, operands: Sequence[Array]) -> Array:
        _, diagonal = call.args
        return function(operands[0], int(diagonal))

    return cut


def centred(call: relax.Call, operands: Sequence[Array]) -> tuple[Array, Array]:
    """Return what `dequantize` makes of known operands as integers in int32, and the scales that they are multiplied
    by, of as many axes."""
    data, *parameters = operands
    axis = int(call.attrs.axis) % max(data.ndim, 1)
    along = [-1 if at == axis else 1 for at in range(data.ndim)]
    scale, zero = (each.reshape(along if each.size > 1 else [1] * data.ndim) for each in parameters)
    return data.astype("int32") - zero.astype("int32"), scale


def _dequantized(call: relax.Call, operands: Sequence[Array]) -> Array:
    values, scale = centred(call, operands)
    return values.astype("float32") * scale


def _combine(function: Callable[..., Array]) -> Evaluate:
    return lambda call, operands: function(*operands)


BROADCASTS = ("full", "broadcast_to")
"""Operators whose result repeats their operand."""

GENERATORS = ("arange", *BROADCASTS)
"""Operators that generate a tensor from scalars and a shape."""

MOVES = ("reshape", "expand_dims", "squeeze", "flatten", "permute_dims", "strided_slice", "astype")
"""Operators whose results are elements of their operand, of any dtype."""

OPERATORS: dict[str, Evaluate] = {
    **dict.fromkeys(("reshape", "expand_dims", "squeeze", "flatten"), _reshaped),
    "permute_dims": _permuted,
    "strided_slice": _sliced,
    "astype": _reshaped,
    "arange": _counted,
    **dict.fromkeys(BROADCASTS, _filled),
    "tril": _triangle(np.tril),
    "triu": _triangle(np.triu),
    "add": _combine(np.add),
    "subtract": _combine(np.subtract),
    "multiply": _combine(np.multiply),
    "divide": _combine(_quotient),
    "sqrt": _combine(np.sqrt),
    **{
        name: _combine(getattr(np, name))
        for name in ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
    },
    **{name: _combine(getattr(np, name)) for name in ("logical_and", "logical_or", "logical_not")},
    "where": _combine(np.where),
    "take": _taken,
    "gather_elements": _gathered,
    "negative": _combine(np.negative),
    "dequantize": _dequantized,
}
"""Each returns the elements in order; the caller gives them dtype and shape."""
