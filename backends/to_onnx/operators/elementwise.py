"""Elementwise operators."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from math import prod

import numpy as np

from backends.to_onnx.call import Convert, ExportedCall, dtype_of, node, shape_of
from backends.to_onnx.graph import EIGHT_BITS, Widened
from fusion.declined import Declined
from fusion.shapes import known_extents
from fusion.tensors import numpy_dtype

_SAME = {
    "abs": "Abs", "acos": "Acos", "acosh": "Acosh", "add": "Add", "asin": "Asin", "asinh": "Asinh", "atan": "Atan",
    "atanh": "Atanh", "ceil": "Ceil", "cos": "Cos", "cosh": "Cosh", "divide": "Div", "equal": "Equal",
    "erf": "Erf", "exp": "Exp", "floor": "Floor", "greater": "Greater", "greater_equal": "GreaterOrEqual",
    "isinf": "IsInf", "isnan": "IsNaN", "less": "Less", "less_equal": "LessOrEqual", "log": "Log",
    "logical_and": "And", "logical_not": "Not", "logical_or": "Or", "logical_xor": "Xor", "maximum": "Max",
    "minimum": "Min", "multiply": "Mul", "negative": "Neg", "nn.gelu": "Gelu",
    "nn.relu": "Relu", "nn.selu": "Selu", "power": "Pow", "round": "Round", "sigmoid": "Sigmoid", "sign": "Sign",
    "sin": "Sin", "sinh": "Sinh", "sqrt": "Sqrt", "subtract": "Sub", "tan": "Tan", "tanh": "Tanh", "where": "Where",
}  # fmt: skip
_ROUNDED_AWAY = 15.0
"""From here on `log(1 + exp(x))` is x but for less than float32 tells."""


def _astype(site: ExportedCall) -> str:
    (x,), dtype = site.inputs, site.dtype(0)
    made = site.cast(x, site.attr("dtype"))
    if dtype in EIGHT_BITS and site.attr("dtype") == "int32":
        shape = known_extents(site.kinds[0].shape)
        site.graph.widened[made] = Widened(x, dtype, shape is not None and prod(shape) == 1)
    return made


def _clip(site: ExportedCall) -> str:
    """`clip(x, 0, 6)`; bounds beyond an integer's range are none."""
    dtype = site.dtype(0)
    low, high = site.number(1), site.number(2)
    if "int" in dtype:
        limits = np.iinfo(numpy_dtype(dtype))
        low, high = max(low, int(limits.min)), min(high, int(limits.max))
    return site.emit("Clip", site.inputs[0], site.scalar(low, dtype), site.scalar(high, dtype))


def _chain(*operators: str) -> Convert:
    """Return what writes a call as a row of nodes, the first on its operands."""

    def convert(site: ExportedCall) -> str:
        value = site.emit(operators[0], *site.inputs)
        for operator in operators[1:]:
            value = site.emit(operator, value)
        return value

    return convert


def _is_finite(site: ExportedCall) -> str:
    """What is not finite has no difference to itself."""
    return site.emit("Not", site.emit("IsNaN", site.emit("Sub", site.inputs[0], site.inputs[0])))


def _times_itself(site: ExportedCall) -> str:
    return site.emit("Mul", site.inputs[0], site.inputs[0])


def _silu(site: ExportedCall) -> str:
    return site.emit("Mul", site.inputs[0], site.emit("Sigmoid", site.inputs[0]))


def _trunc(site: ExportedCall) -> str:
    (x,) = site.inputs
    if "int" in site.dtype(0):
        return site.emit("Identity", x)
    return site.emit("Mul", site.emit("Sign", x), site.emit("Floor", site.emit("Abs", x)))


def _bitwise(operator: str, site: ExportedCall) -> str:
    """Of truth values ONNX has them under other names."""
    return site.emit(operator if site.dtype(0) == "bool" else f"Bitwise{operator}", *site.inputs)


def _dropout(site: ExportedCall) -> list[str]:
    """In inference nothing is dropped, which the mask says."""
    kept = site.result.fields[1]
    mask = site.emit("Expand", site.scalar(1, dtype_of(kept)), site.ints(shape_of(kept)))
    return [site.emit("Identity", site.inputs[0]), mask]


def _softplus(site: ExportedCall) -> str:
    """`log(1 + exp(beta * x)) / beta`, and x itself where `beta * x` is above the threshold."""
    (x,), beta, threshold, dtype = site.inputs, site.attr("beta"), site.attr("threshold"), site.dtype(0)
    if beta == 1.0:
        scaled, soft = x, site.emit("Softplus", x)
    else:
        factor = site.scalar(beta, dtype)
        scaled = site.emit("Mul", x, factor)
        soft = site.emit("Div", site.emit("Softplus", scaled), factor)
    if threshold >= _ROUNDED_AWAY and dtype != "float64":
        return soft
    return site.emit("Where", site.emit("Greater", scaled, site.scalar(threshold, dtype)), x, soft)


def _prelu(site: ExportedCall) -> str:
    x, slope = site.inputs
    axis, (size,) = site.attr("axis") % site.rank(0), site.shape(1)
    return site.emit("PRelu", x, site.reshape(slope, [size, *[1] * (site.rank(0) - axis - 1)]))


def _floor_divide(site: ExportedCall) -> str:
    """ONNX divides integers towards 0; what is left has the divisor's sign."""
    x, y = site.inputs
    dtype = dtype_of(site.result)
    if "int" not in dtype:
        return site.emit("Floor", site.emit("Div", x, y))
    if dtype.startswith("uint"):
        return site.emit("Div", x, y)
    return site.emit("Div", site.emit("Sub", x, site.emit("Mod", x, y)), y)


def _floor_mod(site: ExportedCall) -> str:
    x, y = site.inputs
    if "int" in dtype_of(site.result):
        return site.emit("Mod", x, y)
    return site.emit("Sub", x, site.emit("Mul", site.emit("Floor", site.emit("Div", x, y)), y))


def _shift(direction: str, site: ExportedCall) -> str:
    if not site.dtype(0).startswith("uint"):
        raise Declined("ONNX shifts no numbers with a sign")
    return site.emit("BitShift", *site.inputs, direction=direction)


ELEMENTWISE: Mapping[str, Convert] = {
    **{name: node(operator) for name, operator in _SAME.items()},
    "astype": _astype,
    "bitwise_and": partial(_bitwise, "And"),
    "bitwise_not": partial(_bitwise, "Not"),
    "bitwise_or": partial(_bitwise, "Or"),
    "bitwise_xor": partial(_bitwise, "Xor"),
    "clip": _clip,
    "floor_divide": _floor_divide,
    "floor_mod": _floor_mod,
    "isfinite": _is_finite,
    "left_shift": partial(_shift, "LEFT"),
    "mod": node("Mod", fmod=1),
    "nn.dropout": _dropout,
    "nn.gelu_tanh": node("Gelu", approximate="tanh"),
    "nn.leakyrelu": node("LeakyRelu", {"alpha": "alpha"}),
    "nn.prelu": _prelu,
    "nn.silu": _silu,
    "nn.softplus": _softplus,
    "not_equal": _chain("Equal", "Not"),
    "right_shift": partial(_shift, "RIGHT"),
    "rsqrt": _chain("Sqrt", "Reciprocal"),
    "square": _times_itself,
    "trunc": _trunc,
}
