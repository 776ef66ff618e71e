"""Weights in the order the micro-kernel reads them: [panel of lanes][k][lane], the last panel filled with zeros.

bfloat16, of which an instruction multiplies two steps of k: [panel of lanes][k / 2][lane][k % 2], the last two axes as
one, an odd k filled with a zero; bytes, of which one multiplies four steps, [panel of lanes][k / 4][lane][k % 4]; int16
as bfloat16, in int8 where that holds them.

Where nothing is filled with zeros these are views, which are copied once, to where they stay.

Weights that only the run knows, as those that StyleGAN2 makes of each style, are brought into this order by a kernel of
the run (`packed_weights`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from math import inf
from typing import Any

import numpy as np
import numpy.typing as npt
from tvm import relax, te, tirx
from tvm.ir import GenericConst

from backends.tensorir.emit import Expr
from fusion.made_once import once
from fusion.tensors import aligned_copy, as_numpy

Array = npt.NDArray[Any]
PACK = "pack"
"""What kernels that pack weights of the run are called."""
_SOUGHT = 1 << 16
"""Elements that are looked at together: they stay in L2 (BERT-base's 85 million take 0.05 s)."""
_LEAST_RANGE = 2.0**60
"""So many times as large as those taken for zeros the largest weight is at least."""


def packed_constant(pack: Callable[..., Array], weight: Array, *options: Hashable) -> GenericConst:
    """Return what `pack` makes of `weight` as an operand, the same for all forms that are lowered together."""
    return once(_as_constant, weight, pack, options)


@dataclass(frozen=True)
class Packing:
    """An order of weights: what makes it of those that compiling knows, and of those that a run knows."""

    pack: Callable[..., Array]
    write: Callable[..., te.Tensor]


def packed_weights(
    builder: relax.BlockBuilder, weight: relax.Expr, packing: Packing, *options: Hashable
) -> relax.Expr:
    """Return `weight` as an operand in the order of `packing`: a constant, or what a kernel before this one makes."""
    if isinstance(weight, GenericConst):
        return packed_constant(packing.pack, as_numpy(weight.value), *options)
    made = builder.call_te(lambda values: packing.write(values, *options), weight, primfunc_name_hint=PACK)
    return builder.emit(made)


def _as_constant(weight: Array, pack: Callable[..., Array], options: tuple[Hashable, ...]) -> GenericConst:
    packed = aligned_copy(pack(weight, *options))
    clear_subnormals(as_numpy(packed))
    return relax.const(packed)


def clear_subnormals(weight: Array) -> None:
    """Make the subnormal numbers of `weight`, which is contiguous, zero, where its largest makes them immaterial.

    A multiply-add with one takes some 150 cycles on Intel's CPUs. PP-OCR's recogniser has them in a third of the
    weights of four products, as training leaves them: two of them behind one another took 184 us in place of 17.
    """
    if weight.dtype not in (np.float32, np.float64):  # those of float16 are no smaller than other weights may be
        return
    tiny, elements = np.finfo(weight.dtype).tiny, weight.reshape(-1)
    parts = [elements[start : start + _SOUGHT] for start in range(0, elements.size, _SOUGHT)]
    small = [part for part in parts if np.any((np.abs(part) < tiny) & (part != 0))]
    if not small:
        return
    if _LEAST_RANGE * float(tiny) <= max(float(np.abs(part).max()) for part in parts) < inf:
        for part in small:
            part[np.abs(part) < tiny] = 0


def pack_matmul(weight: Array, lanes: int) -> Array:
    """Return a K x N matrix as [ceil(N / lanes), K, lanes]."""
    depth, channels = weight.shape
    panels = -(-channels // lanes)
    padded = _filled(weight, 1, panels * lanes)
    return np.transpose(padded.reshape(depth, panels, lanes), (1, 0, 2))


def pack_matmul_joined(weight: Array, lanes: int, joined: int) -> Array:
    """Return a K x N matrix as [ceil(N / lanes), ceil(K / joined), lanes * joined]."""
    return _join_steps(pack_matmul(_narrowed(weight), lanes), joined)


def pack_conv2d(weight: Array, groups: int, lanes: int) -> Array:
    """Return OIHW weights as [groups, ceil(O / groups / lanes), KH, KW, I, lanes]."""
    out_channels, in_channels, height, width = weight.shape
    per_group = out_channels // groups
    panels = -(-per_group // lanes)
    padded = _filled(weight.reshape(groups, per_group, in_channels, height, width), 1, panels * lanes)
    blocked = padded.reshape(groups, panels, lanes, in_channels, height, width)
    return np.transpose(blocked, (0, 1, 4, 5, 3, 2))


def _write_conv2d(weight: te.Tensor, groups: int, lanes: int) -> te.Tensor:
    """Write `pack_conv2d`."""
    out_channels, in_channels, height, width = (int(extent) for extent in weight.shape)
    per_group = out_channels // groups
    panels = -(-per_group // lanes)

    def value(group: Expr, panel: Expr, y: Expr, x: Expr, k: Expr, lane: Expr) -> Expr:
        channel = panel * lanes + lane
        weight_of = weight[group * per_group + channel, k, y, x]
        if per_group % lanes == 0:
            return weight_of
        return tirx.if_then_else(channel < per_group, weight_of, tirx.const(0, weight.dtype))

    return te.compute((groups, panels, height, width, in_channels, lanes), value, name="packed")


CONV2D_PANELS = Packing(pack_conv2d, _write_conv2d)


def _pack_taps(weight: Array) -> Array:
    """Return weights of one tap a channel, C x 1 x KH x KW, as [KH, KW, C]."""
    return np.transpose(weight[:, 0], (1, 2, 0))


def _write_taps(weight: te.Tensor) -> te.Tensor:
    """Write `_pack_taps`."""
    channels, _, height, width = weight.shape
    return te.compute((height, width, channels), lambda y, x, c: weight[c, 0, y, x], name="packed")


EACH_TAP = Packing(_pack_taps, _write_taps)


def pack_conv2d_joined(weight: Array, groups: int, lanes: int, merged: bool, joined: int) -> Array:
    """Return OIHW weights as [groups, ceil(O / groups / lanes), KH, KW, ceil(I / joined), lanes * joined], or, where
    taps of a row and their channels are `merged` as one k, [..., KH, 1, ceil(KW * I / joined), lanes * joined]."""
    packed = pack_conv2d(_narrowed(weight), groups, lanes)
    *outer, width, depth, _ = packed.shape
    return _join_steps(packed.reshape(*outer, 1, width * depth, lanes) if merged else packed, joined)


def _narrowed(weight: Array) -> Array:
    """Return weights of int16 as int8 where that holds them: half as many bytes to read."""
    if weight.dtype != np.int16 or not weight.size:
        return weight
    limits = np.iinfo(np.int8)
    return weight.astype(np.int8) if limits.min <= weight.min() <= weight.max() <= limits.max else weight


def _join_steps(packed: Array, many: int) -> Array:
    """Return [..., K, lanes] as [..., ceil(K / many), lanes * many]."""
    *outer, depth, lanes = packed.shape
    whole = _filled(packed, packed.ndim - 2, -(-depth // many) * many)
    steps = whole.reshape(*outer, -1, many, lanes).swapaxes(-1, -2)
    return np.ascontiguousarray(steps).reshape(*outer, -1, lanes * many)


def _filled(array: Array, axis: int, extent: int) -> Array:
    """Return `array` with zeros behind it along an axis up to `extent`."""
    if array.shape[axis] == extent:
        return array
    shape = [extent if at == axis else size for at, size in enumerate(array.shape)]
    filled = np.zeros(shape, array.dtype)
    filled[tuple(map(slice, array.shape))] = array
    return filled
