"""Write one-dimensional convolutions as two-dimensional ones of height 1, which have templates."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.bindings import call_name
from fusion.passes.rebuild import constant, rebuild_main


@dataclass(frozen=True)
class WidenConv1d:
    """`conv1d(x: NCW, w: OIW)`  ->  `squeeze(conv2d(expand_dims(x, 2): NCHW, expand_dims(w, 2): OIHW), 2)`."""

    name: str = "widen_conv1d"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _widen, only="nn.conv1d")


def _widen(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    if call_name(value) != "nn.conv1d" or value.attrs.data_layout != "NCW" or value.attrs.kernel_layout != "OIW":
        return value
    attrs = value.attrs
    data, weight = (_expand(builder, arg) for arg in value.args)
    left, right = (int(n) for n in attrs.padding)
    strides, dilation = (1, int(attrs.strides[0])), (1, int(attrs.dilation[0]))
    wide = relax.op.nn.conv2d(
        data, weight, strides, (0, left, 0, right), dilation, int(attrs.groups), out_dtype=attrs.out_dtype
    )
    return relax.op.squeeze(builder.emit(wide), [2])


def _expand(builder: relax.BlockBuilder, arg: relax.Expr) -> relax.Expr:
    if isinstance(arg, tvm.ir.GenericConst):
        return constant(arg.value.numpy()[:, :, None])
    return builder.emit(relax.op.expand_dims(arg, [2]))
