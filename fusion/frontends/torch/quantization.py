"""Quantisations of torch: converters of those that its PT2E export writes to Relax's own, of which products of bytes
are made, and decompositions of those that stay in floating point and of the scales that a run finds.

    quantize_per_tensor(x, s, z, low, high, dtype)         quantize(x, s, z), in low..high
    dequantize_per_channel(q, s, z, axis, low, high)       dequantize(q, s, z, axis)

torch multiplies by 1 / s where Relax, as ONNX, divides by s: of what lies between two bytes a value in some 100,000
goes to the other one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor, fx
from tvm import relax
from tvm.ir import GenericConst

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.torch.operands import Converter, cast, operands
from fusion.tensors import as_numpy

aten = torch.ops.aten

_BYTES = ("uint8", "int8")


def _quantize(node: fx.Node, importer: Any) -> Any:
    """Bytes between the ends of their dtype, or of fewer bits between closer ones."""
    given, dtype = operands(node, importer), _name(node.meta["val"].dtype)
    if dtype not in _BYTES:
        raise Declined(f"a quantisation to {dtype}")
    emit, data = importer.block_builder.emit, given["input"]
    scale, zero, axis = _parameters(node, given, importer, dtype)
    made = emit(relax.op.quantize(cast(emit, data, "float32"), scale, zero, axis=axis, out_dtype=dtype))
    limits = np.iinfo(dtype)
    for op, name, widest in (
        (relax.op.maximum, "quant_min", limits.min), (relax.op.minimum, "quant_max", limits.max),
    ):  # fmt: skip
        end = _scalar(emit, _number(node, given, importer, name))
        if not isinstance(end, GenericConst) or as_numpy(end.value) != widest:
            made = emit(op(made, cast(emit, end, dtype)))
    return made


def _dequantize(node: fx.Node, importer: Any) -> Any:
    given = operands(node, importer)
    emit, data = importer.block_builder.emit, given["input"]
    dtype = str(data.ty.dtype)
    if dtype not in _BYTES:
        raise Declined(f"a quantisation of {dtype}")
    scale, zero, axis = _parameters(node, given, importer, dtype)
    made = emit(relax.op.dequantize(data, scale, zero, axis=axis, out_dtype="float32"))
    return cast(emit, made, _name(node.meta["val"].dtype))


def _parameters(node: fx.Node, given: dict[str, Any], importer: Any, dtype: str) -> tuple[relax.Expr, relax.Expr, int]:
    """Return scale and zero point of a call, constants where they are known, and the axis that they lie along."""
    per_channel = "axis" in given
    names = ("scales", "zero_points") if per_channel else ("scale", "zero_point")
    scale, zero = (_number(node, given, importer, name) for name in names)
    emit = importer.block_builder.emit
    if not per_channel:
        scale, zero = (_scalar(emit, value) for value in (scale, zero))
    return cast(emit, scale, "float32"), _as_byte(emit, zero, dtype), int(given["axis"]) if per_channel else -1


def _number(node: fx.Node, given: dict[str, Any], importer: Any, name: str) -> relax.Expr:
    """Return an operand that is a number, a tensor or absent, which is 0, as a constant where it is known."""
    value = 0 if given[name] is None else given[name]
    if not isinstance(value, relax.Expr):
        return constant(np.asarray(value, "float32" if isinstance(value, float) else "int64"))
    place = [argument.name for argument in node.target._schema.arguments].index(name)
    source = node.args[place] if place < len(node.args) else node.kwargs[name]
    known = importer.constant_of(source)
    return value if known is None else known


def _scalar(emit: Any, value: relax.Expr) -> relax.Expr:
    """Return the one element of a tensor."""
    if isinstance(value, GenericConst):
        return constant(as_numpy(value.value).reshape(()))
    return emit(relax.op.reshape(value, ()))


def _as_byte(emit: Any, zero: relax.Expr, dtype: str) -> relax.Expr:
    """Return a zero point in the dtype of the bytes.

    Raises:
        Declined: It is known to be none of them.
    """
    if isinstance(zero, GenericConst):
        values, limits = as_numpy(zero.value), np.iinfo(dtype)
        if (np.asarray(values).round() != values).any() or values.min() < limits.min or values.max() > limits.max:
            raise Declined(f"zero points that are no {dtype}")
    return cast(emit, zero, dtype)


def _name(dtype: Any) -> str:
    return str(dtype).partition(".")[2]


def _fake(x: Tensor, scale: Any, zero: Any, low: int, high: int) -> tuple[Tensor, Tensor]:
    """The nearest of the values that bytes stand for, and whether x is between their ends."""
    inverse = 1 / scale
    rounded = torch.round(x.float() * inverse) + zero
    made = (rounded.clamp(low, high) - zero) * scale
    return made.to(x.dtype), (rounded >= low) & (rounded <= high)


def _fake_per_channel(x: Tensor, scale: Tensor, zero: Tensor, axis: int, quant_min: int, quant_max: int) -> Any:
    if zero.dtype.is_floating_point:
        return NotImplemented
    shape = [1] * x.ndim
    shape[axis] = -1
    return _fake(x, scale.reshape(shape), zero.reshape(shape).float(), quant_min, quant_max)


def _fake_where_enabled(
    x: Tensor, scale: Tensor, zero: Tensor, enabled: Tensor, quant_min: int, quant_max: int
) -> tuple[Tensor, Tensor]:
    scale, zero, enabled = (each.reshape(()) for each in (scale, zero, enabled))  # of one element, x of any rank
    made, inside = _fake(x, scale, zero.float(), quant_min, quant_max)
    is_on = enabled != 0
    return torch.where(is_on, made, x), torch.logical_not(is_on) | inside


def _range_of(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale and zero point of the least range that holds x and 0; of halves the latter is found in float32, as torch
    does."""
    least, most = x.amin().clamp(max=0), x.amax().clamp(min=0)
    scale = ((most - least) / float(high - low)).float().clamp(min=eps)
    zero = (low - torch.round(least / scale).to(torch.int64)).clamp(low, high)
    return scale.reshape(1).double(), zero.reshape(1)


def _range_around_zero(x: Tensor, low: int, high: int, eps: float, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    """Scale and zero point of the least range around 0 that holds x."""
    scale = (x.abs().amax() / (float(high - low) / 2)).float().clamp(min=eps)
    return scale.reshape(1).double(), torch.full((1,), 128 if dtype == torch.uint8 else 0, dtype=torch.int64)


def rules() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions: those of PT2E's operators too, where a package has registered them."""
    made: dict[Any, Callable[..., Any]] = {
        aten.fake_quantize_per_tensor_affine_cachemask.default: _fake,
        aten.fake_quantize_per_channel_affine_cachemask.default: _fake_per_channel,
        aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams.default: _fake_where_enabled,
    }
    written = torch.ops.quantized_decomposed
    if hasattr(written, "choose_qparams"):
        made[written.choose_qparams.tensor] = _range_of
        made[written.choose_qparams_symmetric.tensor] = _range_around_zero
    return made


CONVERTERS: dict[str, Converter] = {
    f"{what}_{how}.{form}": convert
    for what, convert in (("quantize", _quantize), ("dequantize", _dequantize))
    for how, forms in (("per_tensor", ("default", "tensor", "tensor2")), ("per_channel", ("default",)))
    for form in forms
}
"""Of `torch.ops.quantized_decomposed`, which torch or torchao registers."""
