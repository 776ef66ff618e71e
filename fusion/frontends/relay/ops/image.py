"""Operators of images: resizes, samples at computed places, and morphology."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from tvm import relax, te, topi
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar
from fusion.frontends.relay.layouts import read_layout
from fusion.frontends.relay.ops.dtypes import as_dtype, is_float
from fusion.frontends.relay.ops.resampling import ResampledAxis, Resampling, taps_of
from fusion.frontends.relay.ops.reshape import permuted
from fusion.frontends.relay.registry import translates
from fusion.frontends.taps import interpolated
from fusion.guards.check import check
from fusion.guards.kinds import batch_guard

_SPATIAL = {"image.resize1d": "W", "image.resize2d": "HW", "image.resize3d": "DHW", "dyn.image.resize2d": "HW",
            "image.resize": "HW"}
_LAYOUTS = {"W": "NCW", "HW": "NCHW", "DHW": "NCDHW"}
_SMOOTH = frozenset({"half_pixel", "align_corners", "asymmetric"})
# Those for which TVM's nearest neighbours are checked against the definition.
_NEAREST = frozenset(
    {("asymmetric", "floor"), ("half_pixel", "round_prefer_floor"), ("half_pixel", "round_prefer_ceil")}
)


@translates("image.resize1d", "image.resize2d", "image.resize3d")
def resize(call: Call) -> Expr:
    return _resize(call, call.ints("size"), call.numbers("roi"))


@translates("image.resize")
def resize_of_07(call: Call) -> Expr:
    """What became `image.resize2d` in TVM 0.8: nearest neighbours are rounded down, or between corners to the next."""
    mode = call.text("coordinate_transformation_mode", "half_pixel")
    if call.text("method", "bilinear") == "nearest_neighbor" and mode == "half_pixel":
        raise Declined("nearest neighbours of half pixels, which versions of TVM define in different ways")
    return _resize(call, call.ints("size"), (), "")


@translates("dyn.image.resize2d")
def dynamic_resize(call: Call) -> Expr:
    region = tuple(float(share) for share in call.const(2).reshape(-1)) if len(call.operands) > 2 else ()
    return _resize(call, call.const_ints(1), region)


def _resize(call: Call, size: Sequence[int], region: Sequence[float], rounding: str = "round") -> Expr:
    """As TVM's own two-dimensional operator where that is exact, otherwise axis by axis with taps computed here."""
    spatial = _SPATIAL[call.operator]
    names = list(read_layout(call.text("layout", _LAYOUTS[spatial])).axes)
    if len(names) != call.rank(0) or not set(spatial) <= set(names) or len(size) != len(spatial):
        raise Declined(f"size {tuple(size)} of {call.shape(0)}, laid out as {''.join(names)}")
    method = call.text("method", "linear")
    how = Resampling(
        {"bilinear": "linear", "bicubic": "cubic"}.get(method, method),
        call.text("coordinate_transformation_mode", "half_pixel"),
        call.text("rounding_method", rounding),
        call.number("cubic_alpha", -0.5),
        bool(call.integer("cubic_exclude", 0)),
    )
    regions = list(region) if len(region) == 2 * len(spatial) else [0.0] * len(spatial) + [1.0] * len(spatial)
    axes = {
        names.index(name): ResampledAxis(
            call.shape(0)[names.index(name)], size[at], regions[at], regions[at + len(spatial)]
        )
        for at, name in enumerate(spatial)
    }
    target = call.dtype_attribute("out_dtype", call.dtype(0))
    if names in (list("NCHW"), list("NHWC")) and _fits(call, how, tuple(axes.values())):
        return as_dtype(call.emit(_resize2d(call, how, list(size), names)), target)
    return _resize_by_axis(call, axes, how, target)


def _fits(call: Call, how: Resampling, axes: Sequence[ResampledAxis]) -> bool:
    if call.dtype(0) != "float32" or (how.transform == "align_corners" and any(axis.target == 1 for axis in axes)):
        return False
    if how.method == "nearest_neighbor":
        return (how.transform, how.rounding or "floor") in _NEAREST
    return how.method in ("linear", "cubic") and how.transform in _SMOOTH


def _resize2d(call: Call, how: Resampling, size: list[int], names: list[str]) -> Expr:
    """In NCHW, which the layout passes know; they take away the transposes around it."""
    resized = relax.op.image.resize2d(
        call.emit(permuted(call.x(0), [names.index(name) for name in "NCHW"])),
        size,
        layout="NCHW",
        method=how.method,
        coordinate_transformation_mode=how.transform,
        rounding_method=(how.rounding or "floor") if how.method == "nearest_neighbor" else "round",
        cubic_alpha=how.alpha,
        cubic_exclude=int(how.exclude_outside),
    )
    return permuted(call.emit(resized), ["NCHW".index(name) for name in names])


def _resize_by_axis(call: Call, axes: dict[int, ResampledAxis], how: Resampling, target: str) -> Expr:
    """The sum over taps of weight times gathered slice, along each axis in turn."""
    smooth = how.method != "nearest_neighbor"
    x = call.emit(as_dtype(call.x(0), "float32")) if smooth and not is_float(call.dtype(0)) else call.x(0)
    for position, axis in axes.items():
        taps = taps_of(axis, how)
        x = call.emit(interpolated(x, position, taps))
        if taps.outside is not None and taps.outside.any():
            shape = [-1 if at == position else 1 for at in range(call.rank(0))]
            fill = scalar(call.number("extrapolation_value", 0.0), dtype_of(x))
            x = call.emit(relax.op.where(constant(taps.outside.reshape(shape)), fill, x))
    return as_dtype(x, target)


def _as_constant(array: np.ndarray, dtype: str) -> Expr:
    """Return `array` as a constant of `dtype`."""
    return relax.const(array, dtype) if dtype == "bfloat16" else constant(array.astype(dtype))


@translates("image.crop_and_resize")
def crop_and_resize(call: Call) -> Expr:
    """Boxes [y1, x1, y2, x2], in shares of the image, each resized to `crop_size`."""
    size, layout = list(call.ints("crop_size")), call.text("layout", "NCHW")
    method, outside = call.text("method", "bilinear"), call.number("extrapolation_value", 0.0)
    dtype = call.dtype_attribute("out_dtype", call.dtype(0))
    if method not in ("bilinear", "nearest_neighbor") or layout not in ("NCHW", "NHWC"):
        raise Declined(f"method {method} in layout {layout}")
    if len(size) != 2 or min(size) < 2 or call.shape(1) != (*call.shape(2), 4):
        raise Declined(f"crops of {tuple(size)} for boxes {call.shape(1)}")

    def crop(data: te.Tensor, boxes: te.Tensor, images: te.Tensor) -> te.Tensor:
        return topi.image.crop_and_resize(data, boxes, images, size, layout, method, outside, dtype)

    count = call.shape(0)[0]
    images = call.emit(check(call.builder, call.x(2), batch_guard(f"{call.operator}, {call.position}", count)))
    return call.builder.call_te(crop, call.x(0), call.x(1), images)


@translates("image.grid_sample")
def grid_sample(call: Call) -> Expr:
    """The image at places of its own, which run from -1 to 1: grid [N, 2 or 3, ...], x first."""
    layout, method = call.text("layout", "NCHW"), call.text("method", "bilinear")
    padding, corners = call.text("padding_mode", "zeros"), call.flag("align_corners", True)
    methods = ("nearest", "bilinear", "bicubic") if layout == "NCHW" else ("nearest", "bilinear", "trilinear")
    if layout not in ("NCHW", "NCDHW") or method not in methods:
        raise Declined(f"method {method} in layout {layout}")
    if padding not in ("zeros", "border", "reflection"):
        raise Declined(f"padding_mode {padding}")
    if call.shape(1)[:2] != (call.shape(0)[0], len(layout) - 2) or call.rank(0) != len(layout):
        raise Declined(f"grid {call.shape(1)} of {call.shape(0)}")

    grid = call.x(1)
    if padding == "reflection" and method == "bicubic":
        return relax.op.image.grid_sample(call.x(0), grid, method, layout, padding, corners)
    if padding == "reflection":
        grid, padding = _reflected(call, grid), "border"

    def sample(data: te.Tensor, grid: te.Tensor) -> te.Tensor:
        return topi.image.grid_sample(data, grid, method, layout, padding, corners)

    return call.builder.call_te(sample, call.x(0), grid)


def _reflected(call: Call, grid: Expr) -> Expr:
    """Return `grid` reflected at -1 and 1, which are the edges of the image whether or not they are its corner pixels.

    TVM reflects within each sample, which takes 1 s to compile for a bilinear and 4 s for a trilinear sample.
    """
    one, two, four = (call.like(value, 1) for value in (1.0, 2.0, 4.0))
    from_edge = call.emit(relax.op.add(grid, one))
    periods = relax.op.floor(relax.op.divide(from_edge, four))
    rest = relax.op.subtract(from_edge, relax.op.multiply(periods, four))
    folded = relax.op.subtract(two, relax.op.abs(relax.op.subtract(rest, two)))
    return call.emit(relax.op.subtract(folded, one))


@translates("image.affine_grid")
def affine_grid(call: Call) -> Expr:
    """The grid [N, 2, H, W] of the matrices [N, 2, 3] applied to places from -1 to 1, corners included."""
    height, width = call.ints("target_shape")
    if call.shape(0)[1:] != (2, 3):
        raise Declined(f"matrices {call.shape(0)}")
    y, x = np.meshgrid(np.linspace(-1, 1, height), np.linspace(-1, 1, width), indexing="ij")
    places = np.stack([x, y, np.ones_like(x)]).reshape(1, 3, -1)
    moved = call.emit(relax.op.matmul(call.x(0), _as_constant(places, call.dtype(0))))
    return relax.op.reshape(moved, (call.shape(0)[0], 2, height, width))


@translates("image.dilation2d")
def dilation2d(call: Call) -> Expr:
    """The largest sum of pixel and weight within each window; the image is padded with zeros."""
    layouts = (call.text("data_layout", "NCHW"), call.text("kernel_layout", "IHW"))
    functions = {("NCHW", "IHW"): topi.image.dilation2d_nchw, ("NHWC", "HWI"): topi.image.dilation2d_nhwc}
    if layouts not in functions:
        raise Declined(f"layouts {layouts[0]} and {layouts[1]}")
    strides, dilations = list(call.ints("strides", (1, 1))), list(call.ints("dilations", (1, 1)))
    padding, dtype = list(call.ints("padding", (0, 0))), call.dtype_attribute("out_dtype", call.dtype(0))

    def dilate(data: te.Tensor, weight: te.Tensor) -> te.Tensor:
        return functions[layouts](data, weight, strides, padding, dilations, dtype)

    return call.builder.call_te(dilate, call.x(0), call.x(1))
