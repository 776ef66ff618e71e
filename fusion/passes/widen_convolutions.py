"""Rewrites convolutions over one axis as two-dimensional ones, which have templates."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.bindings import call_name, operand
from fusion.constants import constant
from fusion.passes.rebuild import rebuild_main
from fusion.shapes import dims_of


@dataclass(frozen=True)
class WidenConvolutions:
    """`conv1d(x: NCW, w: OIW)`  ->  `squeeze(conv2d(expand_dims(x, 3): NCHW, expand_dims(w, 3): OIHW), 3)`,
    and transposed ones likewise, with weights IOW and IOHW.

    The image is a single column, since templates that sum over channels divide the rows of an image into tasks and
    tiles: with a single row, layers of few channels ran on one thread and took 2 to 3 times as long. For a depthwise
    convolution it is a single row, whose neighbours are the lanes: with a single column it took three times as long.
    """

    name: str = "widen_convolutions"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _widen, only=tuple(_KERNEL_LAYOUTS))


_KERNEL_LAYOUTS = {"nn.conv1d": "OIW", "nn.conv1d_transpose": "IOW"}
_ROW, _COLUMN = 2, 3
"""The axis of size 1 that makes the signal a row of an image, or a column."""


def _widen(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    operator = call_name(value)
    if operator not in _KERNEL_LAYOUTS:
        return value
    attrs = value.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NCW", _KERNEL_LAYOUTS[operator]):
        return value
    sizes = dims_of(operand(value, "weight").ty.shape)
    is_depthwise = int(attrs.groups) > 1 and sizes is not None and sizes[1] == 1
    axis = _ROW if is_depthwise else _COLUMN
    left, right = (int(n) for n in attrs.padding)
    options = {
        "strides": _of_image(axis, int(attrs.strides[0]), 1),
        "padding": (*_of_image(axis, left, 0), *_of_image(axis, right, 0)),
        "dilation": _of_image(axis, int(attrs.dilation[0]), 1),
        "groups": int(attrs.groups),
        "out_dtype": attrs.out_dtype,
    }
    operands = [_expand(builder, arg, axis) for arg in value.args]
    if operator == "nn.conv1d":
        wide = relax.op.nn.conv2d(*operands, **options)
    else:
        behind = _of_image(axis, int(attrs.output_padding[0]), 0)
        wide = relax.op.nn.conv2d_transpose(*operands, output_padding=behind, **options)
    return relax.op.squeeze(builder.emit(wide), [axis])


def _of_image(axis: int, along: int, across: int) -> tuple[int, int]:
    """Return what is told of the height and the width of an image whose axis `axis` has size 1."""
    return (across, along) if axis == _ROW else (along, across)


def _expand(builder: relax.BlockBuilder, arg: relax.Expr, axis: int) -> relax.Expr:
    if isinstance(arg, tvm.ir.GenericConst):
        array = arg.value.numpy()
        return constant(array.reshape(*array.shape[:axis], 1, *array.shape[axis:]))
    return builder.emit(relax.op.expand_dims(arg, [axis]))
