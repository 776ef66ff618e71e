"""Fold an explicit padding with zeros into the convolution behind it."""

from __future__ import annotations

from dataclasses import dataclass

import tvm
from tvm import relax

from fusion.passes.rebuild import call_name, rebuild_main, static_shape, with_attrs


@dataclass(frozen=True)
class FoldPads:
    """`conv2d(pad(x, widths), w, padding)`  ->  `conv2d(x, w, padding + widths)` where only spatial axes are padded,
    with zeros; there may be one to three of them."""

    name: str = "fold_pads"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        pads: dict[relax.Var, relax.Call] = {}

        def visit(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
            if _pads_space_with_zeros(value):
                made = builder.emit(value, var.name)
                pads[made] = value
                return made
            layout = _LAYOUTS.get(call_name(value))
            if layout is not None and value.args[0] in pads and value.attrs.data_layout == layout:
                return _folded(value, pads[value.args[0]])
            return value

        return rebuild_main(mod, visit)


_LAYOUTS = {"nn.conv1d": "NCW", "nn.conv2d": "NCHW", "nn.conv3d": "NCDHW"}


def _pads_space_with_zeros(value: relax.Expr) -> bool:
    if call_name(value) != "nn.pad" or value.attrs.pad_mode != "constant" or len(static_shape(value.args[0])) < 3:
        return False
    widths = [int(width) for width in value.attrs.pad_width]
    return not any(widths[:4]) and min(widths) >= 0 and float(value.attrs.pad_value) == 0.0


def _folded(conv: relax.Call, pad: relax.Call) -> relax.Call:
    """The convolution lists the widths before all axes, then those behind; a pad goes axis by axis."""
    widths = [int(width) for width in pad.attrs.pad_width][4:]
    own = [int(width) for width in conv.attrs.padding]
    padding = [a + b for a, b in zip(own, [*widths[::2], *widths[1::2]], strict=True)]
    return with_attrs(conv, [pad.args[0], conv.args[1]], padding=padding)
