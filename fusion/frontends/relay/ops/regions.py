"""Features of regions of an image, and Darknet's reordering of pixels."""

from __future__ import annotations

from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.relay.call import Call
from fusion.frontends.relay.ops.slicing import sliced
from fusion.frontends.relay.registry import translates
from fusion.frontends.relay.rounding import round_half_away


@translates("vision.roi_align")
def roi_align(call: Call) -> Expr:
    """The mean or the maximum of interpolated samples in each bin of regions [image, x1, y1, x2, y2]."""
    layout, mode = call.text("layout", "NCHW"), call.text("mode", "avg")
    if layout not in ("NCHW", "NHWC") or mode not in ("avg", "max"):
        raise Declined(f"mode {mode} in layout {layout}")
    return relax.op.vision.roi_align(
        call.x(0),
        call.x(1),
        _bins(call),
        call.number("spatial_scale", 1.0),
        call.integer("sample_ratio", -1),
        False,
        layout,
        mode,
    )


@translates("vision.roi_pool")
def roi_pool(call: Call) -> Expr:
    """The maximum in each bin of regions [image, x1, y1, x2, y2], whose corners are rounded to pixels.

    They are rounded here, the middle between two pixels away from zero as Relay does; TVM now rounds it to even.
    """
    if call.text("layout", "NCHW") != "NCHW":
        raise Declined(f"layout {call.text('layout', 'NCHW')}")
    regions, scale = call.shape(1)[0], call.like(call.number("spatial_scale", 1.0), 1)
    image = sliced(call.x(1), [slice(0, regions), slice(0, 1)])
    corners = call.emit(relax.op.multiply(call.emit(sliced(call.x(1), [slice(0, regions), slice(1, 5)])), scale))
    pixels = call.emit(round_half_away(call, corners))
    rounded = call.emit(relax.op.concat([call.emit(image), pixels], 1))
    return relax.op.vision.roi_pool(call.x(0), rounded, _bins(call), 1.0)


def _bins(call: Call) -> tuple[int, ...]:
    bins = call.ints("pooled_size")
    if len(bins) != 2 or call.shape(1)[1:] != (5,):
        raise Declined(f"{bins} bins of regions {call.shape(1)}")
    return bins


@translates("vision.yolo_reorg")
def yolo_reorg(call: Call) -> Expr:
    """Darknet's reorg: [N, C, H, W] read as [N, C / s², H s, W s] becomes [N, C s², H / s, W / s], pixels first."""
    (batch, channels, height, width), step = call.shape(0), call.integer("stride", 1)
    if channels % step**2 or height % step or width % step:
        raise Declined(f"stride {step} of {call.shape(0)}")
    fine = (batch, channels // step**2, height, step, width, step)
    parts = call.emit(relax.op.reshape(call.x(0), fine))
    moved = call.emit(relax.op.permute_dims(parts, [0, 3, 5, 1, 2, 4]))
    return relax.op.reshape(moved, (batch, channels * step**2, height // step, width // step))
