"""How Relay brings integers from one scale to another: in float32 or float64, or in fixed point of 64 bits.

Without attributes Relay 0.17 rounds halves up and, where the target has SSE 4.1, computes in float32; so does this
everywhere. Fixed point follows Jacob et al., Quantization and Training of Neural Networks for Efficient
Integer-Arithmetic-Only Inference, 2017.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar, shape_of
from fusion.frontends.relay.rounding import round_half_away
from fusion.tensors import as_numpy


@dataclass(frozen=True)
class Scale:
    """What an integer q stands for: scale * (q - zero).

    Attributes:
        scale: float32, one for all or a vector along an axis.
        zero: int32, likewise.
    """

    scale: Expr
    zero: Expr


@dataclass(frozen=True)
class Rounding:
    """Attributes of `qnn.requantize` that others leave at their defaults."""

    mode: str = "UPWARD"
    compute_dtype: str = "float32"


def requantize(
    call: Call, x: Expr, source: Scale, target: Scale, dtype: str, axis: int = -1, rounding: Rounding | None = None
) -> Expr:
    """Return target.zero + source.scale / target.scale * (x - source.zero), rounded and saturated to `dtype`.

    Raises:
        Declined: Fixed point is asked for with scales that are not constant, or the attributes have no meaning.
    """
    how, x = rounding or Rounding(), call.emit(x)
    if how.mode not in ("UPWARD", "TONEAREST"):
        raise Declined(f"there is no rounding {how.mode!r}")
    if how.compute_dtype == "int64":
        scaled = _in_fixed_point(call, x, source=source, target=target, axis=axis, mode=how.mode)
        return call.emit(_saturated(call, scaled, dtype))
    if how.compute_dtype not in ("float32", "float64"):
        raise Declined(f"there is no computing in {how.compute_dtype!r}")
    wide = how.compute_dtype
    value = relax.op.astype(x, wide)
    if not is_zero(source.zero):
        value = relax.op.subtract(value, relax.op.astype(spread(source.zero, x, axis), wide))
    if not same(source.scale, target.scale):
        value = relax.op.multiply(value, spread(_ratio(call, source.scale, target.scale, wide), x, axis))
    if not is_zero(target.zero):
        value = relax.op.add(value, relax.op.astype(target.zero, wide))
    value = call.emit(value)
    upward = how.mode == "UPWARD"
    rounded = relax.op.floor(relax.op.add(value, scalar(0.5, wide))) if upward else round_half_away(call, value)
    return call.emit(saturate(call, rounded, dtype))


def same_or_requantized(call: Call, x: Expr, source: Scale, target: Scale, dtype: str, axis: int = -1) -> Expr:
    """Return `x` requantized to `dtype`, or only cast where both scales are known to be the same."""
    if same(source.scale, target.scale) and same(source.zero, target.zero):
        return call.emit(relax.op.astype(x, dtype))
    return requantize(call, x, source=source, target=target, dtype=dtype, axis=axis)


def saturate(call: Call, x: Expr, dtype: str) -> Expr:
    """Return float `x`, which is whole, as the nearest integer that `dtype` has."""
    low, high = _limits(dtype)
    wide = dtype_of(call.emit(x))
    # The largest int32 is no float32: the limit is the next smaller one that is.
    top = float(np.nextafter(np.float32(high), np.float32(0))) if wide == "float32" and high > 1 << 24 else float(high)
    return relax.op.astype(relax.op.clip(x, float(low), top), dtype)


def _saturated(call: Call, x: Expr, dtype: str) -> Expr:
    """Return int64 `x` as the nearest integer that `dtype` has; int32 is taken as it is, as Relay does."""
    if dtype == "int32":
        return relax.op.astype(x, dtype)
    return clamp(call, x, dtype)


def clamp(call: Call, x: Expr, dtype: str) -> Expr:
    """Return integer `x` as the nearest integer that `dtype` has."""
    low, high = _limits(dtype)
    x = call.emit(x)
    bounded = relax.op.minimum(relax.op.maximum(x, scalar(low, dtype_of(x))), scalar(high, dtype_of(x)))
    return relax.op.astype(bounded, dtype)


def _limits(dtype: str) -> tuple[int, int]:
    if not dtype.startswith(("int", "uint")):
        raise Declined(f"{dtype} is no integer dtype")
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def _ratio(call: Call, source: Expr, target: Expr, dtype: str) -> Expr:
    if isinstance(source, GenericConst) and isinstance(target, GenericConst):
        return constant((value_of(source).astype(np.float64) / value_of(target).astype(np.float64)).astype(dtype))
    return call.emit(relax.op.astype(relax.op.divide(source, target), dtype))


def _in_fixed_point(call: Call, x: Expr, source: Scale, target: Scale, axis: int, mode: str) -> Expr:
    """Return the rescaled integers in int64: times a significand of 31 bits, shifted to the right with rounding."""
    if not isinstance(source.scale, GenericConst) or not isinstance(target.scale, GenericConst):
        raise Declined("scales that are not constant, in fixed point")
    value = relax.op.astype(x, "int64")
    if not is_zero(source.zero):
        value = relax.op.subtract(value, relax.op.astype(spread(source.zero, x, axis), "int64"))
    if not same(source.scale, target.scale):
        ratios = value_of(source.scale).astype(np.float64) / value_of(target.scale).astype(np.float64)
        value = fixed_point_multiply(call, value, ratios, axis, mode)
    if not is_zero(target.zero):
        value = relax.op.add(value, relax.op.astype(target.zero, "int64"))
    return call.emit(value)


def fixed_point_multiply(call: Call, value: Expr, ratios: np.ndarray, axis: int, mode: str) -> Expr:
    """Return int64 `value` times `ratios`, one for all or one for each element of `axis`, rounded."""
    parts = [_significand_and_exponent(float(ratio)) for ratio in ratios.reshape(-1)]
    columns = [
        [significand for significand, _ in parts],
        [max(exponent, 0) for _, exponent in parts],
        [31 + max(-exponent, 0) for _, exponent in parts],
    ]
    value = call.emit(value)
    arrays = [np.array(column, np.int64).reshape(ratios.shape) for column in columns]
    significand, left, right = (spread(constant(array), value, axis) for array in arrays)
    if arrays[1].any():
        value = relax.op.left_shift(value, left)
    scaled = call.emit(relax.op.multiply(value, significand))
    half = spread(constant(np.left_shift(np.int64(1), arrays[2] - 1)), value, axis)
    if mode == "TONEAREST":
        below = relax.op.less(scaled, scalar(0, "int64"))
        half = relax.op.subtract(half, relax.op.astype(below, "int64"))
    return relax.op.right_shift(relax.op.add(scaled, half), right)


def _significand_and_exponent(ratio: float) -> tuple[int, int]:
    """Return m and e with m * 2^(e - 31) = `ratio` as nearly as 31 bits of m allow."""
    fraction, exponent = math.frexp(ratio)
    significand = math.floor(fraction * (1 << 31) + 0.5)
    return (significand // 2, exponent + 1) if significand == 1 << 31 else (significand, exponent)


def spread(vector: Expr, x: Expr, axis: int) -> Expr:
    """Return `vector` so that it runs along `axis` of `x`; what has one element becomes a scalar."""
    shape, rank = shape_of(vector), len(shape_of(x))
    count = math.prod(shape)
    if count == 1:
        return vector if not shape else _reshaped(vector, ())
    return _reshaped(vector, tuple(count if index == axis % rank else 1 for index in range(rank)))


def _reshaped(vector: Expr, shape: tuple[int, ...]) -> Expr:
    if isinstance(vector, GenericConst):
        return constant(value_of(vector).reshape(shape))
    return relax.op.reshape(vector, shape)


def is_zero(expr: Expr) -> bool:
    """Return whether `expr` is known to be all zeros."""
    return isinstance(expr, GenericConst) and not value_of(expr).any()


def same(a: Expr, b: Expr) -> bool:
    """Return whether both are known to be the same single number."""
    if not isinstance(a, GenericConst) or not isinstance(b, GenericConst):
        return False
    return value_of(a).size == value_of(b).size == 1 and value_of(a).item() == value_of(b).item()


def value_of(expr: Expr) -> np.ndarray:
    """Return the array of a constant."""
    return as_numpy(expr.value)
