"""Convolutions in a form that has a faster kernel."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from fusion.declined import Declined
from fusion.passes.rebuild import with_attrs
from fusion.rewrites.graph import Emit, Value
from fusion.rewrites.rule import Example, Rule, normal

_CHANNELS = 32
"""With fewer, the passes over memory cost more than what the products save."""


def _dilated(root: Value) -> int | None:
    """Return the dilation of a 3x3 convolution of stride 1 that keeps the size of its image."""
    attrs, shape = root.attrs, root.weight.shape
    if not root.weight.is_weight:
        return None
    steps = {int(step) for step in attrs.dilation}
    if shape[2:] != (3, 3) or len(steps) != 1 or steps == {1} or set(map(int, attrs.strides)) != {1}:
        return None
    plain = (str(attrs.data_layout), str(attrs.kernel_layout), int(attrs.groups)) == ("NCHW", "OIHW", 1)
    (step,) = steps
    same_size = plain and set(map(int, attrs.padding)) == {step}
    return step if same_size and root.dtype == "float32" and min(shape[:2]) >= _CHANNELS else None


def _phases(emit: Emit, root: Value, step: int) -> relax.Expr:
    data, weight = root.args
    batch, channels, height, width = data.shape
    if height % step or width % step:
        raise Declined(f"{height} x {width} pixels are no images of every {step}th")
    if min(height, width) < 7 * step:
        raise Declined(f"the images of every {step}th pixel are mostly border")
    if batch * height * width < 3 * max(weight.shape[:2]):
        raise Declined("Winograd's weights would take longer to come from memory than the products that they save")
    small = (height // step, width // step)
    parts = emit(op.reshape(data.expr, (batch, channels, small[0], step, small[1], step)))
    apart = emit(op.permute_dims(parts, [0, 3, 5, 1, 2, 4]))
    images = emit(op.reshape(apart, (batch * step * step, channels, *small)))
    made = emit(with_attrs(root.bound, [images, weight.expr], dilation=[1, 1], padding=[1, 1, 1, 1]))
    apart = emit(op.reshape(made, (batch, step, step, root.shape[1], *small)))
    return op.reshape(emit(op.permute_dims(apart, [0, 3, 4, 1, 5, 2])), root.shape)


def _example(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.nn.conv2d(x, normal(_CHANNELS, _CHANNELS, 3, 3), padding=2, dilation=2)


DILATED_CONV = Rule(
    name="dilated_conv",
    form="conv(x, w, dilation=d)  ->  conv(the d x d images of every d-th pixel, w), put together again",
    source="OLLIE, EinNet: variable split; TensorFlow's space-to-batch",
    assumes="the image is a whole number of dilations wide and high, and padded to keep its size",
    roots=frozenset(("nn.conv2d",)),
    match=_dilated,
    build=_phases,
    example=Example(_example, ((2, _CHANNELS, 14, 16),)),
    near_miss=Example(_example, ((1, _CHANNELS, 15, 16),)),
    declines="of every 2th",
    despite_cost="a dense window has Winograd's form. Between two 1x1 convolutions, us: 256 channels over 28x28, "
    "d = 2, 4900 and 2746; 64 over 56x56, d = 4, 1233 and 730; 32 over 28x28, d = 2, 84 and 61",
)
