"""Convolutions, made channels-first: later passes choose the storage order, to which a transpose here is a name."""

from __future__ import annotations

from collections.abc import Callable

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.windows import SPATIAL, check_window, padding_of, per_axis

_CONV: dict[int, Callable[..., Expr]] = {1: relax.op.nn.conv1d, 2: relax.op.nn.conv2d, 3: relax.op.nn.conv3d}
_DECONV: dict[int, Callable[..., Expr]] = {
    1: relax.op.nn.conv1d_transpose,
    2: relax.op.nn.conv2d_transpose,
    3: relax.op.nn.conv3d_transpose,
}


@translates("nn.conv1d", "nn.conv2d", "nn.conv3d", "nn.contrib_conv2d_NCHWc", "nn.contrib_depthwise_conv2d_NCHWc")
def conv(call: Call) -> Expr:
    return convolve(call, call.x(0), call.x(1))


@translates("nn.conv1d_transpose", "nn.conv2d_transpose", "nn.conv3d_transpose")
def conv_transpose(call: Call) -> Expr:
    return deconvolve(call, call.x(0), call.x(1))


def convolve(call: Call, data: Expr, weight: Expr) -> Expr:
    """Return the convolution of `data` and `weight`, which lie as the attributes of `call` say.

    A weight of as many outermost channels as there are groups and input channels is depthwise, its second axis the
    number of results of each channel.
    """
    rank = _rank(call)
    axes = SPATIAL[rank]
    source = call.text("data_layout", f"NC{axes}")
    data = relayout(call, data, source, f"NC{axes}")
    weight = relayout(call, weight, call.text("kernel_layout", f"OI{axes}"), f"OI{axes}")
    groups, (outer, inner, *kernel) = call.integer("groups", 1), shape_of(weight)
    channels = shape_of(data)[1]
    if groups > 1 and groups == channels == outer and inner > 1:
        weight = call.emit(relax.op.reshape(weight, (outer * inner, 1, *kernel)))
    elif inner * groups != channels:
        raise Declined(f"a weight of {inner} input channels and {groups} groups does not fit {channels} channels")
    dilation, padding = per_axis(call, "dilation", rank), padding_of(call, rank)
    check_window(shape_of(data)[2:], _extents(kernel, dilation), padding)
    result = _CONV[rank](
        data,
        weight,
        strides=per_axis(call, "strides", rank),
        padding=padding,
        dilation=dilation,
        groups=groups,
        out_dtype=_accumulator(call, data, weight),
    )
    return _finished(call, result, dtype_of(data), f"NC{axes}", call.text("out_layout", "") or source)


def deconvolve(call: Call, data: Expr, weight: Expr) -> Expr:
    """Return the transposed convolution of `data` and `weight`, which lie as the attributes of `call` say."""
    rank = _rank(call)
    axes = SPATIAL[rank]
    source = call.text("data_layout", f"NC{axes}")
    data = relayout(call, data, source, f"NC{axes}")
    weight = relayout(call, weight, call.text("kernel_layout", f"IO{axes}"), f"IO{axes}")
    if shape_of(weight)[0] != shape_of(data)[1]:
        raise Declined(f"a weight of {shape_of(weight)[0]} input channels does not fit {shape_of(data)[1]} channels")
    narrow = dtype_of(data)
    wide = _accumulator(call, data, weight) or narrow
    data, weight = (x if dtype_of(x) == wide else call.emit(relax.op.astype(x, wide)) for x in (data, weight))
    result = _DECONV[rank](
        data,
        weight,
        strides=per_axis(call, "strides", rank),
        padding=padding_of(call, rank),
        output_padding=per_axis(call, "output_padding", rank, 0),
        dilation=per_axis(call, "dilation", rank),
        groups=call.integer("groups", 1),
    )
    return _finished(call, result, narrow, f"NC{axes}", call.text("out_layout", "") or source)


def _rank(call: Call) -> int:
    """Return the number of spatial axes, which the operator's name says."""
    return next(rank for rank in SPATIAL if f"conv{rank}d" in call.operator)


def _extents(kernel: list[int], dilation: tuple[int, ...]) -> list[int]:
    return [(size - 1) * step + 1 for size, step in zip(kernel, dilation, strict=True)]


def _accumulator(call: Call, data: Expr, weight: Expr) -> str | None:
    """Return what sums are made in: half precision would lose bits, and integers need the dtype of the result."""
    if dtype_of(data) in ("float16", "bfloat16"):
        return "float32"
    wanted = call.dtype_attribute("out_dtype", dtype_of(data))
    return None if wanted == dtype_of(data) == dtype_of(weight) else wanted


def _finished(call: Call, result: Expr, default: str, have: str, want: str) -> Expr:
    """Return `result` in the dtype that the attributes ask for, or `default`, and in layout `want`."""
    dtype = call.dtype_attribute("out_dtype", default)
    result = call.emit(result)
    result = result if dtype_of(result) == dtype else call.emit(relax.op.astype(result, dtype))
    return relayout(call, result, have, want)
