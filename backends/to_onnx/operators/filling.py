"""Tensors that are made of no other, and quantization."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from backends.to_onnx.call import Convert, ExportedCall, dtype_of, element_type, shape_of
from fusion.tensors import numpy_dtype


def _filled(value: int) -> Convert:
    def convert(site: ExportedCall) -> str:
        return _expand(site, site.scalar(value, dtype_of(site.result)))

    return convert


def _full(site: ExportedCall) -> str:
    """The value is the last operand."""
    value, dtype = site.inputs[-1], dtype_of(site.result)
    same = site.dtype(-1) == dtype
    return _expand(site, value if same else site.cast(value, dtype))


def _expand(site: ExportedCall, value: str) -> str:
    return site.emit("Expand", value, site.ints(shape_of(site.result)))


def _arange(site: ExportedCall) -> str:
    start, end, step = (site.number(at) for at in range(3))
    return site.graph.constant(np.arange(start, end, step).astype(numpy_dtype(dtype_of(site.result))), "range")


def _eye(site: ExportedCall) -> str:
    rows, columns = shape_of(site.result)
    values = np.eye(rows, columns, int(site.number(2)))
    return site.graph.constant(values.astype(numpy_dtype(dtype_of(site.result))), "eye")


def _dequantize(site: ExportedCall) -> str:
    """ONNX's result has the dtype of the scale."""
    dtype = dtype_of(site.result)
    scale = site.inputs[1] if site.dtype(1) == dtype else site.cast(site.inputs[1], dtype)
    return site.emit("DequantizeLinear", site.inputs[0], scale, *_zero(site, 0), axis=site.attr("axis"))


def _quantize(site: ExportedCall) -> str:
    return site.emit("QuantizeLinear", *site.inputs[:2], *_zero(site, None), axis=site.attr("axis"))


def _zero(site: ExportedCall, like: int | None) -> list[str]:
    """Return the zero point, in the dtype of the numbers that it is a zero of."""
    dtype = dtype_of(site.result) if like is None else site.dtype(like)
    element_type(dtype)
    return [site.inputs[2] if site.dtype(2) == dtype else site.cast(site.inputs[2], dtype)]


FILLING: Mapping[str, Convert] = {
    "arange": _arange,
    "dequantize": _dequantize,
    "eye": _eye,
    **dict.fromkeys(("full", "full_like"), _full),
    **dict.fromkeys(("ones", "ones_like"), _filled(1)),
    "quantize": _quantize,
    **dict.fromkeys(("zeros", "zeros_like"), _filled(0)),
}
