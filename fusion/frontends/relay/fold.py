"""Small constants that shapes are made of, computed while translating."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from tvm.ir import GenericConst

from fusion.frontends.relay.call import Call, Operand
from fusion.frontends.relay.ops.reshape import new_shape
from fusion.tensors import as_numpy, numpy_dtype

_LARGEST = 4096
"""Elements; what is larger is a weight, which the passes fold."""

Fold = Callable[[Call], np.ndarray | None]


def fold(call: Call) -> np.ndarray | None:
    """Return the value of `call` where all of its operands are small constants, otherwise None."""
    function = _FOLDS.get(call.operator)
    if function is None or not call.operands or not all(map(_small, _tensors(call))):
        return None
    try:
        if _size(call) > _LARGEST:
            return None
    except ValueError:  # shapes that do not broadcast, of which the operator's translation speaks
        return None
    with np.errstate(all="ignore"):
        result = function(call)
    return None if result is None or result.size > _LARGEST else result


def _size(call: Call) -> int:
    """Return a bound of the elements of the result."""
    if call.operator == "full":
        return math.prod(call.ints("shape"))
    shapes = [as_numpy(operand.value).shape for operand in _tensors(call) if isinstance(operand, GenericConst)]
    if call.operator == "take":
        return math.prod((*shapes[0], *shapes[1]))
    if call.operator in _BROADCAST:
        return math.prod(np.broadcast_shapes(*shapes))
    return sum(map(math.prod, shapes))


def _tensors(call: Call) -> list[Operand]:
    return [entry for operand in call.operands for entry in (operand if isinstance(operand, tuple) else (operand,))]


def _small(operand: Operand) -> bool:
    if not isinstance(operand, GenericConst):
        return False
    array = as_numpy(operand.value)
    return array.size <= _LARGEST and array.dtype.kind in "iubf"


def _binary(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Fold:
    return lambda call: np.asarray(function(call.const(0), call.const(1)))


def _divided(function: Callable[[np.ndarray, np.ndarray], np.ndarray]) -> Fold:
    """A division of integers by zero is left to the run, which fails."""

    def divide(call: Call) -> np.ndarray | None:
        a, b = call.const(0), call.const(1)
        return None if b.dtype.kind in "iu" and not b.all() else np.asarray(function(a, b))

    return divide


def _quotient(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return a / b, of integers rounded towards zero."""
    if a.dtype.kind == "f":
        return np.asarray(a / b)
    return np.asarray((a - np.fmod(a, b)) // b, a.dtype)


def _entries(call: Call) -> list[np.ndarray]:
    return [as_numpy(entry.value) for entry in _tensors(call) if isinstance(entry, GenericConst)]


def _take(call: Call) -> np.ndarray | None:
    axis = call.optional_integer("axis")
    size = call.const(0).size if axis is None else call.shape(0)[axis]
    inside = ((call.const(1) >= 0) & (call.const(1) < size)).all()
    if not size or (call.text("mode", "clip") == "fast" and not inside):
        return None
    mode = {"clip": "clip", "wrap": "wrap", "fast": "clip"}[call.text("mode", "clip")]
    return np.asarray(np.take(call.const(0), call.const(1), axis, mode=mode))  # type: ignore[call-overload]


def _squeeze(call: Call) -> np.ndarray:
    return np.squeeze(call.const(0), call.optional_ints("axis"))


def _expand_dims(call: Call) -> np.ndarray:
    x, axis = call.const(0), call.integer("axis", 0)
    count = call.integer("num_newaxis", 1)
    first = axis if axis >= 0 else axis + x.ndim + 1
    return x.reshape((*x.shape[:first], *[1] * count, *x.shape[first:]))


def _reshape(call: Call) -> np.ndarray:
    return call.const(0).reshape(new_shape(call.shape(0), call.ints("newshape"), call.flag("allowzero", False)))


def _part_of_vector(call: Call) -> np.ndarray | None:
    """What `strided_slice` takes of a vector, forwards."""
    begin, end, strides = call.ints("begin"), call.ints("end"), call.ints("strides", (1,))
    simple = call.rank(0) == len(begin) == len(end) == 1 and strides[0] > 0 and call.text("slice_mode", "end") == "end"
    return call.const(0)[begin[0] : end[0] : strides[0]] if simple else None


def _product(call: Call) -> np.ndarray | None:
    if call.flag("exclude", False):
        return None
    axes, keep = call.optional_ints("axis"), call.flag("keepdims", False)
    return np.asarray(np.prod(call.const(0), axis=axes, keepdims=keep), call.const(0).dtype)


def _full(call: Call) -> np.ndarray:
    return np.full(call.ints("shape"), call.const(0), numpy_dtype(call.dtype_attribute("dtype", call.dtype(0))))


_BROADCAST = frozenset(
    {
        *("add", "subtract", "multiply", "divide", "floor_divide", "floor_mod", "maximum", "minimum", "where"),
        *("equal", "not_equal", "less", "less_equal", "greater", "greater_equal", "logical_and", "logical_or"),
    }
)
_FOLDS: dict[str, Fold] = {
    "add": _binary(np.add),
    "subtract": _binary(np.subtract),
    "multiply": _binary(np.multiply),
    "divide": _divided(_quotient),
    "floor_divide": _divided(np.floor_divide),
    "floor_mod": _divided(np.mod),
    "maximum": _binary(np.maximum),
    "minimum": _binary(np.minimum),
    "equal": _binary(np.equal),
    "not_equal": _binary(np.not_equal),
    "less": _binary(np.less),
    "less_equal": _binary(np.less_equal),
    "greater": _binary(np.greater),
    "greater_equal": _binary(np.greater_equal),
    "logical_and": _binary(np.logical_and),
    "logical_or": _binary(np.logical_or),
    "logical_not": lambda call: np.logical_not(call.const(0)),
    "negative": lambda call: np.negative(call.const(0)),
    "abs": lambda call: np.abs(call.const(0)),
    "where": lambda call: np.where(call.const(0), call.const(1), call.const(2)),
    "cast": lambda call: call.const(0).astype(numpy_dtype(call.dtype_attribute("dtype", call.dtype(0)))),
    "cast_like": lambda call: call.const(0).astype(numpy_dtype(call.dtype(1))),
    "take": _take,
    "concatenate": lambda call: np.concatenate(_entries(call), call.integer("axis", 0)),
    "stack": lambda call: np.stack(_entries(call), call.integer("axis", 0)),
    "squeeze": _squeeze,
    "expand_dims": _expand_dims,
    "reshape": _reshape,
    "strided_slice": _part_of_vector,
    "prod": _product,
    "full": _full,
    "floor": lambda call: np.floor(call.const(0)),
    "ceil": lambda call: np.ceil(call.const(0)),
}
