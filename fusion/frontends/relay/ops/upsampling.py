"""Images made larger by a factor."""

from __future__ import annotations

import math
from collections.abc import Callable

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call, shape_of
from fusion.frontends.relay.layouts import relayout
from fusion.frontends.relay.registry import translates

_METHODS = {
    "nearest_neighbor": "nearest_neighbor",
    "bilinear": "linear",
    "trilinear": "linear",
    "bicubic": "cubic",
}


@translates("nn.upsampling", "dyn.nn.upsampling")
def upsampling(call: Call) -> Expr:
    """By `scale_h` and `scale_w`; pixels lie at their upper left corners, or with `align_corners` from edge to edge."""
    mode = "align_corners" if call.flag("align_corners", False) else "asymmetric"
    return _resized(call, relax.op.image.resize2d, "HW", mode)


@translates("nn.upsampling3d", "dyn.nn.upsampling3d")
def upsampling3d(call: Call) -> Expr:
    mode = call.text("coordinate_transformation_mode", "half_pixel")
    return _resized(call, relax.op.image.resize3d, "DHW", mode)


def _resized(call: Call, resize: Callable[..., Expr], axes: str, mode: str) -> Expr:
    planes = f"NC{axes}"
    layout = call.text("layout", planes)
    x = relayout(call, call.x(0), layout, planes)
    result = resize(
        x,
        _sizes(call, x, tuple(f"scale_{axis.lower()}" for axis in axes)),
        layout=planes,
        method=_method(call),
        coordinate_transformation_mode=mode,
        rounding_method=_rounding(mode),
        cubic_alpha=-0.5,
    )
    return relayout(call, call.emit(result), planes, layout)


def _sizes(call: Call, x: Expr, names: tuple[str, ...]) -> tuple[int, ...]:
    """Return the sizes of the result; the factors are attributes, or operands of operators of `dyn`."""
    if call.operator.startswith("dyn."):
        factors = [float(call.const(index).item()) for index in range(1, 1 + len(names))]
    else:
        factors = [call.number(name, 1.0) for name in names]
    return tuple(math.floor(size * factor + 0.5) for size, factor in zip(shape_of(x)[2:], factors, strict=True))


def _method(call: Call) -> str:
    method = call.text("method", "nearest_neighbor")
    if method not in _METHODS:
        raise Declined(f"there is no method {method!r}")
    return _METHODS[method]


def _rounding(mode: str) -> str:
    return "round" if mode == "align_corners" else "floor"
