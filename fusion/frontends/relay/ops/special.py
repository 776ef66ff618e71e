"""Operators of `nn` that few networks use, some by TVM's own library of kernels."""

from __future__ import annotations

from tvm import relax, topi
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.windows import padding_of, per_axis

_FAR = 1e6
"""Pixels: farther than any image is large; float16 has infinity for it."""


@translates("nn.fifo_buffer")
def fifo_buffer(call: Call) -> Expr:
    """The last elements of buffer and data one behind the other, as many as the buffer has."""
    axis = call.axis("axis", 0)
    size, new = call.shape(1)[axis], call.shape(0)[axis]
    both = relax.op.concat([call.x(1), call.x(0)], axis)
    return relax.op.strided_slice(call.emit(both), [axis], [new], [new + size])


@translates("nn.dilate")
def dilate(call: Call) -> Expr:
    """Put `dilation_value` between neighbours, so that they are `strides` apart."""
    x, strides = call.x(0), call.ints("strides")
    if len(strides) != call.rank(0):
        raise Declined(f"attribute strides has {len(strides)} numbers for {call.rank(0)} axes")
    value = call.like(call.number("dilation_value", 0.0))
    for axis, stride in enumerate(strides):
        shape = list(shape_of(x))
        if stride == 1:
            continue
        gap = call.emit(relax.op.full((*shape[: axis + 1], stride - 1, *shape[axis + 1 :]), value))
        both = relax.op.concat([relax.op.expand_dims(x, axis + 1), gap], axis + 1)
        shape[axis] *= stride
        flat = relax.op.reshape(both, shape)
        x = call.emit(relax.op.strided_slice(flat, [axis], [0], [shape[axis] - stride + 1]))
    return x


@translates("nn.correlation")
def correlation(call: Call) -> Expr:
    if call.text("layout", "NCHW") != "NCHW":
        raise Declined("a layout other than NCHW")
    top, left, bottom, right = padding_of(call, 2)
    return call.builder.call_te(
        topi.nn.correlation_nchw,
        call.x(0),
        call.x(1),
        call.integer("kernel_size", 1),
        call.integer("max_displacement", 1),
        call.integer("stride1", 1),
        call.integer("stride2", 1),
        (top, left, bottom, right),
        call.flag("is_multiply", True),
    )


@translates("nn.deformable_conv2d")
def deformable_conv2d(call: Call) -> Expr:
    """Data, offsets of the window's points, weight."""
    layout, kernel = call.text("data_layout", "NCHW"), call.text("kernel_layout", "OIHW")
    data, offset = (relayout(call, call.x(index), layout, "NCHW") for index in (0, 1))
    # TVM looks up where NaN points to; far away there are zeros.
    far = scalar(_FAR, dtype_of(offset))
    offset = call.emit(relax.op.where(relax.op.less_equal(relax.op.abs(offset), far), offset, far))
    result = call.builder.call_te(
        topi.nn.deformable_conv2d_nchw,
        data,
        offset,
        relayout(call, call.x(2), kernel, "OIHW"),
        per_axis(call, "strides", 2),
        padding_of(call, 2),
        per_axis(call, "dilation", 2),
        call.integer("deformable_groups", 1),
        call.integer("groups", 1),
        call.dtype_attribute("out_dtype", call.dtype(0)),
    )
    return relayout(call, call.emit(result), "NCHW", call.text("out_layout", "") or layout)
