"""Fold an explicit padding with zeros into the convolution behind it."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.passes.rebuild import call_name, rebuild_main, static_shape, with_attrs


@dataclass(frozen=True)
class FoldPads:
    """`conv2d(pad(x, widths), w, padding)`  ->  `conv2d(x, w, padding + widths)` where only spatial axes are
    padded, with zeros."""

    name: str = "fold_pads"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        pads: dict[relax.Var, relax.Call] = {}

        def visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
            if _pads_space_with_zeros(value):
                made = builder.emit(value, var.name)
                pads[made] = value
                return made
            if call_name(value) == "nn.conv2d" and value.args[0] in pads and value.attrs.data_layout == "NCHW":
                return _folded(value, pads[value.args[0]])
            return value

        return rebuild_main(mod, visit)


def _pads_space_with_zeros(value: relax.Expr) -> bool:
    if call_name(value) != "nn.pad" or value.attrs.pad_mode != "constant" or len(static_shape(value.args[0])) != 4:
        return False
    widths = [int(width) for width in value.attrs.pad_width]
    return not any(widths[:4]) and min(widths) >= 0 and float(value.attrs.pad_value) == 0.0


def _folded(conv: relax.Call, pad: relax.Call) -> relax.Call:
    _, _, _, _, above, below, before, after = (int(width) for width in pad.attrs.pad_width)
    top, left, bottom, right = (int(width) for width in conv.attrs.padding)
    padding = [top + above, left + before, bottom + below, right + after]
    return with_attrs(conv, [pad.args[0], conv.args[1]], padding=padding)
