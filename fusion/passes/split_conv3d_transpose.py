"""Write three-dimensional transposed convolutions as two-dimensional ones over the planes, which have templates."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np
import tvm
from tvm import relax
from tvm.ir import GenericConst

from fusion.bindings import call_name
from fusion.constants import constant
from fusion.passes.rebuild import rebuild_main
from fusion.passes.split_conv3d import planes_of
from fusion.shapes import as_ints, static_shape

_OPERATOR = "nn.conv3d_transpose"


@dataclass(frozen=True)
class SplitConv3dTranspose:
    """`conv3d_transpose(x: NCDHW, w: IODHW)`, whose planes are told by a phase each:

        plane s * j + r  =  the sum over taps k of conv2d_transpose(x[j + (r + p - k * d) / s], w[:, :, k])

    of those taps for which s divides that, for a stride s, a padding p and a dilation d along the depth. Neighbouring
    phases that read the same planes, as all do where the kernel is as deep as the stride, are channels of one
    convolution. Plain loops over an image with zeros in between took 0.38 of a small U-Net's time.
    """

    name: str = "split_conv3d_transpose"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        return rebuild_main(mod, _split, only=(_OPERATOR,))


@dataclass(frozen=True)
class _Depth:
    """A transposed convolution along the depth.

    Attributes:
        stride, padding, step: The padding before the first plane, and what taps are apart.
        taps: Of the kernel.
        planes: Of the image.
        made: Planes of the result.
    """

    stride: int
    padding: int
    step: int
    taps: int
    planes: int
    made: int

    @property
    def of_phase(self) -> int:
        """Planes of a phase, those behind the result's last one among them."""
        return -(-self.made // self.stride)

    def taps_by_shift(self, phase: int) -> dict[int, int]:
        """Return the tap of each place, counted from that of the phase's plane, at which it reads the image."""
        found = {}
        for tap in range(self.taps):
            shift, rest = divmod(phase + self.padding - tap * self.step, self.stride)
            if not rest:
                found[shift] = tap
        return found


def _split(builder: relax.BlockBuilder, var: relax.Var, value: relax.Expr) -> relax.Expr:
    if call_name(value) != _OPERATOR or (value.attrs.data_layout, value.attrs.kernel_layout) != ("NCDHW", "IODHW"):
        return value
    data, weight = value.args
    attrs, dtypes = value.attrs, {str(arg.ty.dtype.dtype) for arg in value.args}
    if not isinstance(weight, GenericConst) or dtypes != {"float32"} or int(attrs.groups) != 1:
        return value
    (batch, _, planes, *_), (*_, made, height, width) = static_shape(data), static_shape(var)
    stride, padding, step = (as_ints(sizes)[0] for sizes in (attrs.strides, attrs.padding, attrs.dilation))
    depth = _Depth(stride, padding, step, taps=static_shape(weight)[2], planes=planes, made=made)
    phases = list(map(depth.taps_by_shift, range(stride)))
    if not all(phases):
        return value  # planes that no tap reaches
    shifts = {shift for phase in phases for shift in phase}
    before, behind = max(0, -min(shifts)), max(0, depth.of_phase + max(shifts) - planes)
    padded = planes_of(builder, data, before, behind)
    channels, parts = static_shape(weight)[1], []
    for _, group in groupby(phases, key=lambda phase: sorted(phase)):
        taps = list(group)
        total = _sum_of_images(builder, value, _Read(padded, before, depth.of_phase), taps)
        of_group = (batch, depth.of_phase, len(taps), channels, height, width)
        parts.append(builder.emit(relax.op.reshape(total, of_group)))
    joined = parts[0] if len(parts) == 1 else builder.emit(relax.op.concat(parts, 2))
    by_plane = builder.emit(relax.op.permute_dims(joined, [0, 3, 1, 2, 4, 5]))
    whole = builder.emit(relax.op.reshape(by_plane, (batch, channels, depth.of_phase * stride, height, width)))
    return whole if made == depth.of_phase * stride else relax.op.strided_slice(whole, [2], [0], [made])


@dataclass(frozen=True)
class _Read:
    """What phases read: `count` planes of N, D, C, H, W `planes`, of which `before` are zeros in front of the image."""

    planes: relax.Expr
    before: int
    count: int


def _sum_of_images(
    builder: relax.BlockBuilder, value: relax.Call, read: _Read, taps: Sequence[Mapping[int, int]]
) -> relax.Expr:
    """Return what neighbouring phases make, the channels of one behind those of the other; `taps` has what each reads,
    at the same shifts."""
    (_, weight), attrs = value.args, value.attrs
    kernel = weight.value.numpy()
    top, left, bottom, right = (as_ints(attrs.padding)[at] for at in (1, 2, 4, 5))
    strides, dilation, more = (as_ints(sizes)[1:] for sizes in (attrs.strides, attrs.dilation, attrs.output_padding))
    batch, _, *image = static_shape(read.planes)
    total: relax.Expr | None = None
    for shift in sorted(taps[0]):
        begin = read.before + shift
        part = builder.emit(relax.op.strided_slice(read.planes, [1], [begin], [begin + read.count], [1]))
        images = builder.emit(relax.op.reshape(part, (batch * read.count, *image)))
        weights = constant(np.concatenate([kernel[:, :, tap[shift]] for tap in taps], axis=1))
        made = builder.emit(
            relax.op.nn.conv2d_transpose(images, weights, strides, (top, left, bottom, right), more, dilation)
        )
        total = made if total is None else builder.emit(relax.op.add(made, total))
    return total
