"""Windows over images, and images under other sizes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from functools import partial

import numpy as np

from backends.to_onnx.call import Convert, ExportedCall, shape_of
from backends.to_onnx.operators.products import stored_as
from backends.to_onnx.operators.reductions import reduced
from fusion.declined import Declined

_METHODS = {"nearest_neighbor": "nearest", "linear": "linear", "cubic": "cubic"}
_SAMPLED_BY = {"bilinear": "linear", "nearest": "nearest", "bicubic": "cubic"}
_PLACED_BY = frozenset({"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel"})


def _canonical(layout: str) -> str:
    return f"NC{''.join(axis for axis in 'DHW' if axis in layout)}"


def _pool(operator: str, site: ExportedCall) -> str:
    layout = site.attr("layout")
    canonical = _canonical(layout)
    image = stored_as(site, site.inputs[0], layout, canonical)
    counted = {"count_include_pad": int(site.attr("count_include_pad"))} if operator == "AveragePool" else {}
    pooled = site.emit(
        operator, image,
        kernel_shape=site.attr("pool_size"), strides=site.attr("strides"), dilations=site.attr("dilation"),
        pads=site.attr("padding"), ceil_mode=int(_overhangs(site)), **counted,
    )  # fmt: skip
    return stored_as(site, pooled, canonical, site.attr("out_layout") or layout)


def _overhangs(site: ExportedCall) -> bool:
    """Return whether the last window begins in the image and ends beyond it, along each axis where it can.

    A last window that begins in the padding is none for Relax, as for ONNX Runtime, while ONNX's own types have it.
    """
    if not site.attr("ceil_mode"):
        return False
    layout, out_layout = site.attr("layout"), site.attr("out_layout") or site.attr("layout")
    axes = [axis for axis in "DHW" if axis in layout]
    pads, more = site.attr("padding"), set()
    for at, (axis, size, stride, step) in enumerate(
        zip(axes, site.attr("pool_size"), site.attr("strides"), site.attr("dilation"), strict=True)
    ):
        padded = site.shape(0)[layout.index(axis)] + pads[at] + pads[at + len(axes)]
        last, left = divmod(padded - (size - 1) * step - 1, stride)
        places = shape_of(site.result)[out_layout.index(axis)]
        more |= {places > last + 1} if left else set()
    if len(more) > 1:
        raise Declined("along one axis a window begins in the padding, along another one overhangs")
    return more == {True}


def _adaptive_pool(site: ExportedCall) -> str:
    """Windows of one size each; where the sizes do not divide, ONNX has none."""
    layout, out_layout = site.attr("layout"), site.attr("out_layout") or site.attr("layout")
    canonical = _canonical(layout)
    image = stored_as(site, site.inputs[0], layout, canonical)
    sizes = [site.shape(0)[layout.index(axis)] for axis in canonical[2:]]
    wanted = [shape_of(site.result)[out_layout.index(axis)] for axis in canonical[2:]]
    if all(size == 1 for size in wanted):
        pooled = reduced(site, "ReduceMean", image, list(range(2, len(canonical))), True)
    elif any(size % target for size, target in zip(sizes, wanted, strict=True)):
        raise Declined("its windows are of several sizes")
    else:
        window = [size // target for size, target in zip(sizes, wanted, strict=True)]
        pooled = site.emit("AveragePool", image, kernel_shape=window, strides=window)
    return stored_as(site, pooled, canonical, out_layout)


def _resize(site: ExportedCall) -> str:
    layout, method, placed = site.attr("layout"), site.attr("method"), site.attr("coordinate_transformation_mode")
    if method not in _METHODS or placed not in _PLACED_BY:
        raise Declined(f"no {method!r} at {placed!r} is written as a Resize of ONNX")
    canonical = _canonical(layout)
    sizes = [shape_of(site.result)[layout.index(axis)] for axis in canonical]
    image = stored_as(site, site.inputs[0], layout, canonical)
    cubic = {"cubic_coeff_a": site.attr("cubic_alpha"), "exclude_outside": int(site.attr("cubic_exclude"))}
    resized = site.emit(
        "Resize", image, "", "", site.ints(sizes),
        mode=_METHODS[method], coordinate_transformation_mode=placed,
        nearest_mode=_rounded_by(site, placed) if method == "nearest_neighbor" else None,
        **(cubic if method == "cubic" else {}),
    )  # fmt: skip
    return stored_as(site, resized, canonical, layout)


def _rounded_by(site: ExportedCall, placed: str) -> str:
    """Return ONNX's name of how places are rounded; of those between two pixels Relax rounds to the even one, ONNX to
    the one before or to the one behind."""
    rounded = site.attr("rounding_method") or ("round" if placed == "align_corners" else "floor")
    if rounded != "round":
        return str(rounded)
    layout, result = site.attr("layout"), shape_of(site.result)
    ties = [
        place
        for at, axis in enumerate(layout) if axis in "DHW"
        for place in _ties(placed, site.shape(0)[at], result[at])
    ]  # fmt: skip
    if all(place % 2 == 0 for place in ties):
        return "round_prefer_floor"
    if all(place % 2 == 1 for place in ties):
        return "round_prefer_ceil"
    raise Declined("places between two pixels are rounded to the even one")


def _ties(placed: str, size: int, target: int) -> Iterator[int]:
    """Yield the pixels of an axis half way between which and the next pixels of the result lie.

    Raises:
        Declined: In float32 TVM or ONNX Runtime has one of these places beside it.
    """
    begin, one = Fraction(1 if "half" in placed else 0, 2), np.float32(1)
    have, want = (size - 1, target - 1) if placed == "align_corners" else (size, target)
    for at in range(target if want > 0 else 0):
        place = (at + begin) * have / want - begin
        if place.denominator == 2 and 0 < place < size - 1:
            start, first = one * float(begin), one * float(at + begin)
            ours = first * (one * have / want) - start
            theirs = (first * have / want if placed == "align_corners" else first / (one * want / have)) - start
            if not float(ours) == float(theirs) == place:
                raise Declined("places half way between two pixels depend on how they are computed")
            yield int(place)


def _grid_sample(site: ExportedCall) -> str:
    """Relax has the coordinates of a place behind each other along axis 1, ONNX along the last."""
    image, grid = site.inputs
    method, rank = site.attr("method"), site.rank(0)
    if site.attr("layout") not in ("NCHW", "NCDHW") or method not in _SAMPLED_BY:
        raise Declined(f"ONNX samples {site.attr('layout')} by no {method!r}")
    last = site.transpose(grid, [0, *range(2, rank), 1])
    return site.emit(
        "GridSample", image, last,
        mode=_SAMPLED_BY[method], padding_mode=site.attr("padding_mode"), align_corners=int(site.attr("align_corners")),
    )  # fmt: skip


WINDOWS: Mapping[str, Convert] = {
    **{f"nn.adaptive_avg_pool{rank}d": _adaptive_pool for rank in (1, 2, 3)},
    **{f"nn.avg_pool{rank}d": partial(_pool, "AveragePool") for rank in (1, 2, 3)},
    **{f"nn.max_pool{rank}d": partial(_pool, "MaxPool") for rank in (1, 2, 3)},
    "image.grid_sample": _grid_sample,
    "image.resize2d": _resize,
    "image.resize3d": _resize,
}
