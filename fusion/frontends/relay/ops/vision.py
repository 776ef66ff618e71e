"""Operators of object detection."""

from __future__ import annotations

import math

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.constants import constant
from fusion.declined import Declined
from fusion.frontends.relay.call import Call, dtype_of, scalar, shape_of
from fusion.frontends.relay.ops.dtypes import as_dtype, filled
from fusion.frontends.relay.ops.reshape import broadcast
from fusion.frontends.relay.ops.slicing import sliced
from fusion.frontends.relay.ops.suppression import ABSENT, BYSTANDER, RIVAL, kept_boxes
from fusion.frontends.relay.registry import translates


@translates("vision.get_valid_counts")
def get_valid_counts(call: Call) -> list[Expr]:
    """How many boxes [batch, boxes, numbers] score above the threshold; those in front, -1 behind; their places."""
    data, identity, threshold = call.x(0), call.integer("id_index", 0), as_dtype(call.x(1), call.dtype(0))
    scores = _column(call, data, call.integer("score_index", 1))
    valid = relax.op.greater(scores, threshold)
    if identity >= 0:
        named = relax.op.greater_equal(_column(call, data, identity), call.like(0))
        valid = relax.op.logical_and(valid, named)
    counts, order = _valid_first(call, call.emit(valid))
    return [counts, _front(call, _reordered(call, data, order), counts), _front(call, order, counts)]


@translates("vision.non_max_suppression")
def non_max_suppression(call: Call) -> Expr | list[Expr]:
    """Of the first boxes, as many as operand 1 says, those that no better one covers: rows, or their places."""
    data, (batch, count, _) = call.x(0), call.shape(0)
    overlap = float(call.const(4).reshape(-1)[0])
    if overlap <= 0:
        raise Declined(f"iou_threshold {overlap}")
    index, identity, start = call.integer("score_index", 1), call.integer("id_index", 0), call.integer("coord_start", 2)
    given = call.emit(as_dtype(call.x(1), "int32"))
    scores = call.emit(relax.op.where(_is_before(call, count, given), _column(call, data, index), _lowest(call)))
    order = call.emit(relax.op.argsort(scores, 1, True, "int32"))
    rows = _reordered(call, data, order)
    top = call.integer("top_k", -1)
    limited = call.emit(relax.op.minimum(given, scalar(top, "int32"))) if top > 0 else given
    present = _is_before(call, count, limited)
    scored = relax.op.greater(_column(call, rows, index), call.like(0))
    role = call.emit(relax.op.where(scored, scalar(RIVAL, "int32"), scalar(BYSTANDER, "int32")))
    alike = call.flag("force_suppress", False) or identity < 0
    groups = filled((batch, count), 0, call.dtype(0)) if alike else _column(call, rows, identity)
    kept = kept_boxes(
        call,
        call.emit(_columns(rows, start, start + 4)),
        groups=call.emit(groups),
        roles=call.emit(relax.op.where(present, role, scalar(ABSENT, "int32"))),
        limit=_limits(call, 3, batch, count),
        overlap=overlap,
    )
    stays = call.emit(relax.op.greater(call.emit(kept), scalar(0, "int32")))
    if call.flag("return_indices", True):
        return _places(call, stays, order)
    found = _where_rows(call, stays, rows)
    if not call.flag("invalid_to_bottom", False):
        return found
    counts, first = _valid_first(call, call.emit(relax.op.greater_equal(_column(call, found, 0), call.like(0))))
    return _front(call, _reordered(call, found, first), counts)


def _places(call: Call, stays: Expr, order: Expr) -> list[Expr]:
    """The places, in the data before get_valid_counts, of the boxes that stay, -1 behind them; and their number."""
    original = call.emit(relax.op.gather_elements(as_dtype(call.x(2), "int32"), as_dtype(order, "int64"), 1))
    counts, first = _valid_first(call, stays)
    front = relax.op.gather_elements(original, as_dtype(first, "int64"), 1)
    return [_front(call, call.emit(front), counts), relax.op.reshape(counts, (call.shape(0)[0], 1))]


@translates("vision.all_class_non_max_suppression")
def all_class_non_max_suppression(call: Call) -> list[Expr]:
    """For each class the boxes [batch, boxes, 4] by scores [batch, classes, boxes] that no better one covers.

    In the format `onnx` rows (batch, class, box) and their number; in the format `tensorflow`, for each batch, rows
    (class, box), scores and their number. What lies behind that number is 0.
    """
    (batch, classes, count), overlap = call.shape(1), float(call.const(3).reshape(-1)[0])
    style, rows = call.text("output_format", "onnx"), batch * classes
    if style not in ("onnx", "tensorflow"):
        raise Declined(f"output_format {style}")
    scores = call.emit(relax.op.reshape(call.x(1), (rows, count)))
    order = call.emit(relax.op.argsort(scores, 1, True, "int32"))
    best = call.emit(relax.op.gather_elements(scores, as_dtype(order, "int64"), 1))
    threshold = relax.op.reshape(as_dtype(call.x(4), call.dtype(1)), ())
    active = call.emit(relax.op.astype(relax.op.greater(best, call.emit(threshold)), "int32"))
    for_each = broadcast(call.emit(relax.op.expand_dims(call.x(0), 1)), (batch, classes, count, 4))
    boxes = _reordered(call, call.emit(relax.op.reshape(call.emit(for_each), (rows, count, 4))), order)
    groups = call.emit(filled((rows, count), 0, "int32"))
    kept = call.emit(
        kept_boxes(call, boxes, groups=groups, roles=active, limit=_limits(call, 2, rows, count, 1), overlap=overlap)
    )
    problems, width = (1, 3) if style == "onnx" else (batch, 2)
    return _selected(call, kept, order=order, best=best, problems=problems, width=width)


def _selected(call: Call, kept: Expr, order: Expr, best: Expr, problems: int, width: int) -> list[Expr]:
    """Bring the boxes that stay to the front of each problem, as rows of `width` indices."""
    (batch, classes, count), rows = call.shape(1), call.shape(1)[0] * call.shape(1)[1]
    total = batch * classes * count // problems
    stays = relax.op.greater(call.emit(relax.op.reshape(kept, (problems, total))), scalar(0, "int32"))
    counts, first = _valid_first(call, call.emit(stays))
    prefix = np.stack([np.arange(rows) // classes, np.arange(rows) % classes], 1)[:, 3 - width - 2 :]
    leading = np.broadcast_to(prefix[:, None], (rows, count, width - 1)).reshape(problems, total, width - 1)
    last = relax.op.reshape(as_dtype(order, "int64"), (problems, total, 1))
    table = call.emit(relax.op.concat([constant(np.ascontiguousarray(leading)), call.emit(last)], 2))
    indices = _front(call, _reordered(call, table, first), counts, 0)
    number = relax.op.astype(counts, "int64")
    if width == 3:
        return [relax.op.reshape(call.emit(indices), (total, width)), number]
    scores = call.emit(relax.op.reshape(best, (problems, total)))
    chosen = call.emit(relax.op.gather_elements(scores, as_dtype(first, "int64"), 1))
    return [indices, _front(call, chosen, counts, 0), number]


def _limits(call: Call, operand: int, rows: int, count: int, least: int = 0) -> Expr:
    """Return the most boxes that stay, int32 [rows], of an operand in which less than `least` means all."""
    limit = call.emit(relax.op.reshape(call.emit(as_dtype(call.x(operand), "int32")), (1,)))
    whole = relax.op.where(relax.op.less(limit, scalar(least, "int32")), scalar(count, "int32"), limit)
    return call.emit(broadcast(call.emit(whole), (rows,)))


def _lowest(call: Call) -> Expr:
    return call.like(-math.inf)


def _column(call: Call, rows: Expr, index: int) -> Expr:
    """Return number `index` of each row of [batch, boxes, numbers]."""
    return call.emit(relax.op.reshape(call.emit(_columns(rows, index, index + 1)), shape_of(rows)[:2]))


def _columns(rows: Expr, start: int, stop: int) -> Expr:
    batch, count, width = shape_of(rows)
    if not 0 <= start < stop <= width:
        raise Declined(f"columns {start} to {stop} of rows of {width}")
    return sliced(rows, [slice(0, batch), slice(0, count), slice(start, stop)])


def _is_before(call: Call, count: int, counts: Expr) -> Expr:
    """Return bool [batch, count]: whether a place lies before those `counts` [batch]."""
    column = call.emit(relax.op.expand_dims(counts, 1))
    return call.emit(relax.op.less(constant(np.arange(count, dtype="int32")[None]), column))


def _valid_first(call: Call, valid: Expr) -> tuple[Expr, Expr]:
    """Return how many of bool [batch, count] are true, and the places of those followed by the others, int32."""
    counts = call.emit(relax.op.sum(call.emit(relax.op.astype(valid, "int32")), [1]))
    others = call.emit(relax.op.astype(relax.op.logical_not(valid), "int32"))
    return counts, call.emit(relax.op.argsort(others, 1, False, "int32"))


def _reordered(call: Call, rows: Expr, order: Expr) -> Expr:
    """Return rows [batch, boxes, numbers] at the places `order` [batch, boxes]."""
    tuples = call.emit(relax.op.expand_dims(call.emit(as_dtype(order, "int64")), 2))
    return call.emit(relax.op.gather_nd(rows, tuples, 1))


def _front(call: Call, x: Expr, counts: Expr, rest: float = -1) -> Expr:
    """Return `x` with `rest` behind the first `counts` of each batch."""
    before = _is_before(call, shape_of(x)[1], counts)
    if len(shape_of(x)) == 3:
        before = call.emit(relax.op.expand_dims(before, 2))
    return call.emit(relax.op.where(before, x, scalar(rest, dtype_of(x))))


def _where_rows(call: Call, stays: Expr, rows: Expr) -> Expr:
    return call.emit(relax.op.where(call.emit(relax.op.expand_dims(stays, 2)), rows, call.like(-1)))


@translates("vision.multibox_prior")
def multibox_prior(call: Call) -> Expr:
    """Anchors [left, top, right, bottom] in shares of the image around each pixel, which only its shape tells."""
    _, _, height, width = call.shape(0)
    sizes, ratios = call.numbers("sizes", (1.0,)), call.numbers("ratios", (1.0,))
    given, offsets = call.numbers("steps", (-1.0, -1.0)), call.numbers("offsets", (0.5, 0.5))
    steps = [step if step > 0 else 1 / size for step, size in zip(given, (height, width), strict=True)]
    y, x = ((np.arange(size) + offset) * step for size, offset, step in
            zip((height, width), offsets, steps, strict=True))
    square = height / width
    halves = [(size * square / 2, size / 2) for size in sizes]
    halves += [(sizes[0] * square * math.sqrt(r) / 2, sizes[0] / math.sqrt(r) / 2) for r in ratios[1:]]
    wide, high = np.array(halves).T
    centers = np.broadcast_arrays(x[None, :, None], y[:, None, None], wide)[:2]
    corners = np.stack([centers[0] - wide, centers[1] - high, centers[0] + wide, centers[1] + high], -1)
    limited = corners.clip(0, 1) if call.flag("clip", False) else corners
    return constant(limited.reshape(1, -1, 4).astype("float32"))


@translates("vision.multibox_transform_loc")
def multibox_transform_loc(call: Call) -> list[Expr]:
    """Rows [class, score, left, top, right, bottom] of anchors that show an object, in front; and their number.

    Operands: probabilities [batch, classes, anchors], shifts [batch, anchors * 4], anchors [1, anchors, 4].
    """
    (batch, classes, count), background = call.shape(0), call.flag("keep_background", False)
    first = 0 if background else 1
    shown = call.emit(sliced(call.x(0), [slice(0, batch), slice(first, classes), slice(0, count)]))
    score = call.emit(relax.op.max(shown, [1]))
    best = call.emit(relax.op.add(call.emit(relax.op.argmax(shown, 1)), scalar(first, "int64")))
    sure = relax.op.greater_equal(score, call.like(call.number("threshold", 0.01)))
    name = call.emit(relax.op.where(sure, best, scalar(0, "int64")))
    valid = filled((batch, count), 1, "bool") if background else relax.op.greater(name, scalar(0, "int64"))
    shift = relax.op.astype(relax.op.subtract(name, scalar(first, "int64")), call.dtype(1))
    columns = [relax.op.expand_dims(column, 2) for column in (shift, as_dtype(score, call.dtype(1)))]
    rows = call.emit(relax.op.concat([*map(call.emit, columns), _decoded(call, batch, count)], 2))
    counts, order = _valid_first(call, call.emit(valid))
    return [_front(call, _reordered(call, rows, order), counts), counts]


def _decoded(call: Call, batch: int, count: int) -> Expr:
    """Return the corners of the anchors, moved and scaled by the shifts."""
    variances = np.array(call.numbers("variances", (0.1, 0.1, 0.2, 0.2)))
    shifts = call.emit(relax.op.reshape(call.x(1), (batch, count, 4)))
    near, far = (call.emit(_columns(call.x(2), at, at + 2)) for at in (0, 2))
    move, grow = (call.emit(_columns(shifts, at, at + 2)) for at in (0, 2))
    size = call.emit(relax.op.subtract(far, near))
    half = call.like(0.5, 1)
    middle = relax.op.multiply(relax.op.add(near, far), half)
    by, times = (constant(variances[at : at + 2].astype(call.dtype(1))) for at in (0, 2))
    center = call.emit(relax.op.add(relax.op.multiply(relax.op.multiply(move, by), size), middle))
    reach = relax.op.multiply(relax.op.multiply(relax.op.exp(relax.op.multiply(grow, times)), size), half)
    reach = call.emit(reach)
    corners = call.emit(relax.op.concat([relax.op.subtract(center, reach), relax.op.add(center, reach)], 2))
    return call.emit(relax.op.clip(corners, 0.0, 1.0)) if call.flag("clip", True) else corners
