"""Resize: as `relax.image.resize2d` where that means the same, otherwise axis by axis with taps computed here."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.interpolate import ResizeAxis, taps_of
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.ops.resize_antialias import fill_outside, resize_with_antialias
from fusion.frontends.onnx.registry import converts
from fusion.frontends.taps import interpolated

_METHODS = {"nearest": "nearest_neighbor", "linear": "linear", "cubic": "cubic"}
# Relax's rounding of nearest neighbours is checked against ONNX for these pairs only.
_NEAREST = frozenset(
    {
        ("asymmetric", "floor"), ("asymmetric", "simple"),
        ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil"),
    }
)  # fmt: skip
_SMOOTH = frozenset({"half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"})


@converts("Resize", "Upsample")
def resize(node: Node) -> Expr:
    axes = _resized_axes(node)
    if not axes:
        return node.x(0)
    if node.attr("antialias", 0):
        return resize_with_antialias(node, axes, _transform(node))
    return _resize2d(node) if _fits_resize2d(node, axes) else _resize_by_axis(node, axes)


def _resized_axes(node: Node) -> dict[int, ResizeAxis]:
    """Return the axes whose size or scale changes."""
    source, target = node.shape(0), node.out_shape()
    roi, scales = _roi_and_scales(node)
    changed = [axis for axis in range(len(source)) if source[axis] != target[axis] or scales[axis] != 1.0 or roi]
    return {
        axis: ResizeAxis(source[axis], target[axis], scales[axis], *(roi[axis] if roi else (0.0, 1.0)))
        for axis in changed
    }


def _roi_and_scales(node: Node) -> tuple[list[tuple[float, float]], list[float]]:
    source, target = node.shape(0), node.out_shape()
    rank = len(source)
    axes = [int(axis) % rank for axis in node.attr("axes") or range(rank)]
    if node.op == "Upsample":
        given = node.const(1) if node.has(1) else np.asarray(node.attr("scales"))
    else:
        given = node.const(1 if node.opset < 11 else 2)
    scales = [want / have for want, have in zip(target, source, strict=True)]
    if given is not None and given.size:
        for axis, scale in zip(axes, given.reshape(-1), strict=True):
            scales[axis] = float(scale)
    elif node.attr("keep_aspect_ratio_policy", "stretch") != "stretch":
        scales = _common_scale(node, axes, scales)
    if node.attr("coordinate_transformation_mode") != "tf_crop_and_resize":
        return [], scales
    box = node.const(1)
    if box is None:
        raise Declined("the region of interest is missing")
    ends = {axis: (float(box[at]), float(box[at + len(axes)])) for at, axis in enumerate(axes)}
    return [ends.get(axis, (0.0, 1.0)) for axis in range(rank)], scales


def _common_scale(node: Node, axes: list[int], scales: list[float]) -> list[float]:
    """One scale for all axes: the smallest or largest that the wanted sizes ask for."""
    sizes = node.const(3)
    if sizes is None:
        return scales
    asked = [float(size) / node.shape(0)[axis] for size, axis in zip(sizes, axes, strict=True)]
    common = min(asked) if node.attr("keep_aspect_ratio_policy") == "not_larger" else max(asked)
    return [common if axis in axes else scale for axis, scale in enumerate(scales)]


def _fits_resize2d(node: Node, axes: dict[int, ResizeAxis]) -> bool:
    mode, transform = node.attr("mode", "nearest"), _transform(node)
    exact = all(axis.has_own_scale for axis in axes.values())
    # TVM divides by the size less one to align corners, of axes that stay as they are too; PyTorch reads the first of
    # all pixels where it makes one.
    single = transform in ("align_corners", "pytorch_half_pixel") and 1 in node.out_shape()[2:]
    rounding = _nearest_mode(node)
    # Up, "simple" is the one below; TVM has no word for it.
    down = rounding == "simple" and any(axis.scale < 1 for axis in axes.values())
    cubic = mode == "cubic" and not node.attr("exclude_outside", 0)
    smooth = (mode in ("linear", "bilinear") or cubic) and transform in _SMOOTH and not single
    nearest = (
        mode == "nearest"
        and (transform, rounding) in _NEAREST
        and not down
        and all(_is_exact(axis) for axis in axes.values())
    )
    return (
        len(node.shape(0)) == 4
        and set(axes) <= {2, 3}
        and exact
        and node.dtype(0) == "float32"
        and (smooth or nearest)
    )


def _is_exact(axis: ResizeAxis) -> bool:
    """Return whether TVM, which multiplies by the inverse of the scale, finds the nearest neighbours that ONNX Runtime
    finds, which divides by it: between two neighbours the last bit decides.

    Elements copied a whole number of times are never there, and dividing by a power of two is exact. Of 3,000 random
    pairs of sizes up to 300, one in twenty had another neighbour somewhere.
    """
    copies, left = divmod(axis.target, axis.source)
    kept, over = divmod(axis.source, axis.target)
    return (copies > 0 and left == 0) or (over == 0 and kept.bit_count() == 1)


def _resize2d(node: Node) -> Expr:
    mode, rounding = node.attr("mode", "nearest"), _nearest_mode(node)
    rounding = {"simple": "floor"}.get(rounding, rounding)
    return relax.op.image.resize2d(
        node.x(0),
        node.out_shape()[2:],
        layout="NCHW",
        method=_METHODS["linear" if mode == "bilinear" else mode],
        coordinate_transformation_mode=_transform(node),
        rounding_method=rounding if mode == "nearest" else "round",
        cubic_alpha=float(node.attr("cubic_coeff_a", -0.75)),
    )


def _resize_by_axis(node: Node, axes: dict[int, ResizeAxis]) -> Expr:
    """Each axis in turn: the sum over taps of weight times gathered slice."""
    x, dtype = node.x(0), node.dtype(0)
    floating = dtype.startswith("float")
    mode = node.attr("mode", "nearest")
    if not floating and mode != "nearest":
        raise Declined(f"interpolation of {dtype}")  # how ONNX Runtime rounds it depends on layout and dtype
    for position, axis in axes.items():
        taps = taps_of(
            axis,
            mode,
            transform=_transform(node),
            rounding=_nearest_mode(node),
            exclude_outside=bool(node.attr("exclude_outside", 0)),
            cubic_a=float(node.attr("cubic_coeff_a", -0.75)),
        )
        x = node.emit(interpolated(x, position, taps))
        if taps.outside is not None:
            x = fill_outside(node, x, position, taps.outside)
    return x


def _transform(node: Node) -> str:
    """Before opset 11, Resize and Upsample had one transformation and rounded down."""
    default = "asymmetric" if node.op == "Upsample" or node.opset < 11 else "half_pixel"
    return str(node.attr("coordinate_transformation_mode", default))


def _nearest_mode(node: Node) -> str:
    default = "simple" if node.op == "Upsample" or node.opset < 11 else "round_prefer_floor"
    return str(node.attr("nearest_mode", default))
