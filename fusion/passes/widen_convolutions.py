"""Write one-dimensional convolutions as two-dimensional ones of height 1, which have templates."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.bindings import call_name
from fusion.passes.rebuild import constant, rebuild_main


@dataclass(frozen=True)
class WidenConvolutions:
    """`conv1d(x: NCW, w: OIW)`  ->  `squeeze(conv2d(expand_dims(x, 2): NCHW, expand_dims(w, 2): OIHW), 2)`,
    and so a transposed one, whose weights are IOW and IOHW.

    Transposed ones had plain loops over an image with zeros in between: two thirds of a vocoder's time.
    """

    name: str = "widen_convolutions"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _widen, only=tuple(_KERNEL_LAYOUTS))


_KERNEL_LAYOUTS = {"nn.conv1d": "OIW", "nn.conv1d_transpose": "IOW"}


def _widen(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    operator = call_name(value)
    if operator not in _KERNEL_LAYOUTS:
        return value
    attrs = value.attrs
    if (attrs.data_layout, attrs.kernel_layout) != ("NCW", _KERNEL_LAYOUTS[operator]):
        return value
    data, weight = (_expand(builder, arg) for arg in value.args)
    left, right = (int(n) for n in attrs.padding)
    window = {
        "strides": (1, int(attrs.strides[0])), "padding": (0, left, 0, right), "dilation": (1, int(attrs.dilation[0])),
        "groups": int(attrs.groups), "out_dtype": attrs.out_dtype,
    }  # fmt: skip
    if operator == "nn.conv1d":
        wide = relax.op.nn.conv2d(data, weight, **window)
    else:
        behind = (0, int(attrs.output_padding[0]))
        wide = relax.op.nn.conv2d_transpose(data, weight, output_padding=behind, **window)
    return relax.op.squeeze(builder.emit(wide), [2])


def _expand(builder: relax.BlockBuilder, arg: relax.Expr) -> relax.Expr:
    if isinstance(arg, tvm.ir.GenericConst):
        return constant(arg.value.numpy()[:, :, None])
    return builder.emit(relax.op.expand_dims(arg, [2]))
