"""Explicit paddings go into the windows behind them."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from fusion.declined import Declined
from fusion.passes.rebuild import with_attrs
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.rule import Example, Rule, normal

_LAYOUTS = {"nn.conv1d": "NCW", "nn.conv2d": "NCHW", "nn.conv3d": "NCDHW"}


def _padded(root: Value) -> Value | None:
    """Return the padding that a convolution over one to three axes reads."""
    pad = root.data
    return pad if pad.op == "nn.pad" and root.attrs.data_layout == _LAYOUTS[root.op] else None


def _folded(emit: Emit, root: Value, pad: Value) -> relax.Expr:
    """The convolution lists the widths before all axes, then those behind; a pad goes axis by axis."""
    widths = [int(width) for width in pad.attrs.pad_width]
    if any(widths[:4]) or min(widths) < 0:
        raise Declined("more than space is padded, or less than nothing")
    if pad.attrs.pad_mode != "constant" or float(pad.attrs.pad_value) != 0.0:
        raise Declined("it is padded with something other than zeros")
    own = [int(width) for width in root.attrs.padding]
    padding = [a + b for a, b in zip(own, [*widths[4::2], *widths[5::2]], strict=True)]
    return with_attrs(root.bound, [pad.data.expr, root.weight.expr], padding=padding)


def _example(b: relax.BlockBuilder, x: relax.Var, value: float = 0.0) -> relax.Expr:
    padded = b.emit(op.nn.pad(x, [0, 0, 0, 0, 1, 2, 3, 0], pad_value=value))
    return op.nn.conv2d(padded, normal(5, 4, 3, 3), padding=(1, 0, 0, 1), strides=2)


PAD = Rule(
    name="pad",
    form="conv(pad(x, widths), w, padding)  ->  conv(x, w, padding + widths)",
    source="ONNX Runtime's PadFusion",
    assumes="only spatial axes are padded, with zeros",
    roots=frozenset(_LAYOUTS),
    match=_padded,
    build=_folded,
    example=Example(_example, ((2, 4, 6, 7),)),
    near_miss=Example(lambda b, x: _example(b, x, 1.0), ((2, 4, 6, 7),)),
    declines="other than zeros",
)
