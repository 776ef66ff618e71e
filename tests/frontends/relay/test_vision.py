"""Operators of object detection against their definitions, box by box."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(18)


def _detections(count: int, classes: int = 3, low: float = -0.3) -> np.ndarray:
    """Rows [class, score, x1, y1, x2, y2] of two images, many of which overlap; some corners are exchanged."""
    corner = _RANDOM.uniform(0, 5, (2, count, 2))
    boxes = np.concatenate([corner, corner + _RANDOM.uniform(1, 4, (2, count, 2))], -1)
    boxes[:, ::5] = boxes[:, ::5][..., [2, 3, 0, 1]]
    kinds = _RANDOM.integers(-1, classes, (2, count, 1))
    scores = _RANDOM.permutation(np.linspace(low, 1, 2 * count)).reshape(2, count, 1)
    return np.concatenate([kinds, scores, boxes], -1).astype("float32")


def _valid(data: np.ndarray, threshold: float, identity: int, index: int) -> list[np.ndarray]:
    rows, places = np.full_like(data, -1), np.full(data.shape[:2], -1, "int32")
    counts = np.zeros(len(data), "int32")
    for image, boxes in enumerate(data):
        for at, box in enumerate(boxes):
            if box[index] > threshold and (identity < 0 or box[identity] >= 0):
                rows[image, counts[image]], places[image, counts[image]] = box, at
                counts[image] += 1
    return [counts, rows, places]


@pytest.mark.parametrize("threshold", [-1.0, 0.2, 2.0])
@pytest.mark.parametrize("identity", [0, -1])
def test_valid_counts(threshold: float, identity: int) -> None:
    data = _detections(9)
    given = {"id_index": identity, "score_index": 1}
    want = _valid(data, threshold, identity, 1)
    check([Case("vision.get_valid_counts", [data, Known(np.array(threshold, "float32"))], want, given),
           Case("vision.get_valid_counts", [data, np.array(threshold, "float32")], want, given)])


def _overlap(one: np.ndarray, other: np.ndarray) -> float:
    low = np.maximum(np.minimum(one[:2], one[2:]), np.minimum(other[:2], other[2:]))
    high = np.minimum(np.maximum(one[:2], one[2:]), np.maximum(other[:2], other[2:]))
    common = np.prod(np.maximum(high - low, 0))
    union = np.prod(np.abs(one[2:] - one[:2])) + np.prod(np.abs(other[2:] - other[:2])) - common
    return common / union if union > 0 else 0.0


def _suppressed(boxes: np.ndarray, count: int, most: int, overlap: float, alike: bool, top: int) -> list[int]:
    """Relay's loop over one image; returns the boxes that stay, the best first."""
    order = np.argsort(-boxes[:count, 1], kind="stable")[: top if top > 0 else None]
    stay: list[int] = []
    counted = 0
    for at in order:
        if counted == most:
            break
        if boxes[at, 1] <= 0:
            stay.append(at)
            continue
        rivals = [k for k in stay if boxes[k, 1] > 0 and (alike or boxes[k, 0] == boxes[at, 0])]
        if all(_overlap(boxes[at, 2:], boxes[k, 2:]) < overlap for k in rivals):
            stay.append(at)
            counted += 1
    return stay


@pytest.mark.parametrize(("most", "overlap", "alike", "top"), [
    (-1, 0.3, False, -1), (-1, 0.2, True, -1), (4, 0.3, False, -1), (-1, 0.4, True, 7), (2, 0.1, True, 9),
    (0, 0.5, True, -1),
])
def test_non_max_suppression(most: int, overlap: float, alike: bool, top: int) -> None:
    data = _detections(16)
    counts, rows, places = _valid(data, -0.1, 0, 1)
    stay = [_suppressed(r, c, most, overlap, alike, top) for r, c in zip(rows, counts, strict=True)]
    indices, numbers, front = np.full(data.shape[:2], -1, "int32"), np.zeros((2, 1), "int32"), np.full_like(rows, -1)
    scattered = np.full_like(rows, -1)
    for image, kept in enumerate(stay):
        indices[image, : len(kept)], numbers[image] = places[image, kept], len(kept)
        front[image, : len(kept)] = rows[image, kept]
        order = np.argsort(-rows[image, : counts[image], 1], kind="stable")
        for at, box in enumerate(order):
            if box in kept:
                scattered[image, at] = rows[image, box]
    given = {"force_suppress": alike, "top_k": top, "coord_start": 2, "score_index": 1, "id_index": 0}
    threshold, limit = Known(np.array(overlap, "float32")), np.array(most, "int32")
    check([
        Case("vision.non_max_suppression", [rows, counts, places, Known(limit), threshold], [indices, numbers],
             {**given, "return_indices": True}),
        Case("vision.non_max_suppression", [rows, counts, places, limit, threshold], front,
             {**given, "return_indices": False, "invalid_to_bottom": True}),
        Case("vision.non_max_suppression", [rows, counts, places, limit, threshold], scattered,
             {**given, "return_indices": False, "invalid_to_bottom": False}),
    ])


@pytest.mark.parametrize(("most", "threshold"), [(-1, 0.0), (3, 0.4), (0, 0.2)])
def test_all_class_non_max_suppression(most: int, threshold: float) -> None:
    boxes = np.stack([_detections(8)[0, :, 2:], _detections(8)[1, :, 2:]])
    scores = _RANDOM.permutation(np.linspace(-0.2, 1, 48)).reshape(2, 3, 8).astype("float32")
    rows: list[list[list[int]]] = [[], []]
    for image, kind in np.ndindex(2, 3):
        order = np.argsort(-scores[image, kind], kind="stable")
        kept: list[int] = []
        for at in order[scores[image, kind][order] > threshold]:
            free = all(_overlap(boxes[image, at], boxes[image, k]) < 0.3 for k in kept)
            if free and (most < 1 or len(kept) < most):
                kept.append(at)
        rows[image] += [[kind, at] for at in kept]
    triples = np.zeros((48, 3), "int64")
    flat = [[image, *row] for image in (0, 1) for row in rows[image]]
    triples[: len(flat)] = flat
    pairs, chosen = np.zeros((2, 24, 2), "int64"), np.zeros((2, 24), "float32")
    for image, found in enumerate(rows):
        pairs[image, : len(found)] = found
        chosen[image, : len(found)] = [scores[image, kind, at] for kind, at in found]
    operands = [boxes, scores, np.array(most, "int64"), Known(np.array(0.3, "float32")), np.array(threshold, "float32")]
    check([
        Case("vision.all_class_non_max_suppression", operands, [triples, np.array([len(flat)])]),
        Case("vision.all_class_non_max_suppression", operands, [pairs, chosen, np.array([len(r) for r in rows])],
             {"output_format": "tensorflow"}),
    ])


def test_multibox_prior() -> None:
    image = np.zeros((1, 3, 4, 6), "float32")
    sizes, ratios = (0.3, 0.5), (1.0, 2.0, 0.5)
    want = []
    for y, x in np.ndindex(4, 6):
        shapes = [(s * 4 / 6 / 2, s / 2) for s in sizes]
        shapes += [(0.3 * 4 / 6 * r**0.5 / 2, 0.3 / r**0.5 / 2) for r in ratios[1:]]
        for w, h in shapes:
            want.append([(x + 0.5) / 6 - w, (y + 0.25) * 0.2 - h, (x + 0.5) / 6 + w, (y + 0.25) * 0.2 + h])
    boxes = np.array(want, "float32")[None]
    given = {"sizes": sizes, "ratios": ratios, "steps": (0.2, -1.0), "offsets": (0.25, 0.5)}
    check([
        Case("vision.multibox_prior", [image], boxes, given),
        Case("vision.multibox_prior", [image], boxes.clip(0, 1), {**given, "clip": True}),
    ])


@pytest.mark.parametrize("background", [False, True])
@pytest.mark.parametrize("clip", [False, True])
def test_multibox_transform_loc(background: bool, clip: bool) -> None:
    scores = _RANDOM.uniform(0, 1, (2, 4, 7)).astype("float32")
    shifts = _RANDOM.standard_normal((2, 28)).astype("float32")
    corner = _RANDOM.uniform(0, 0.6, (1, 7, 2))
    anchors = np.concatenate([corner, corner + 0.3], -1).astype("float32")
    rows, counts = np.full((2, 7, 6), -1, "float32"), np.zeros(2, "int32")
    first = 0 if background else 1
    for image, at in np.ndindex(2, 7):
        kind = int(scores[image, first:, at].argmax()) + first
        score = scores[image, kind, at]
        kind = kind if score >= 0.8 else 0
        if not background and kind == 0:
            continue
        left, top, right, bottom = anchors[0, at]
        x, y, w, h = shifts[image, 4 * at : 4 * at + 4] * (0.1, 0.2, 0.3, 0.4)
        cx, cy = x * (right - left) + (left + right) / 2, y * (bottom - top) + (top + bottom) / 2
        rx, ry = np.exp(w) * (right - left) / 2, np.exp(h) * (bottom - top) / 2
        box = np.array([cx - rx, cy - ry, cx + rx, cy + ry])
        rows[image, counts[image]] = [kind - first, score, *(box.clip(0, 1) if clip else box)]
        counts[image] += 1
    check([Case("vision.multibox_transform_loc", [scores, shifts, anchors], [rows, counts],
                {"clip": clip, "threshold": 0.8, "variances": (0.1, 0.2, 0.3, 0.4), "keep_background": background})])


def _sample(image: np.ndarray, y: float, x: float) -> np.ndarray:
    """Interpolate [C, H, W]; a place more than a pixel outside gives 0."""
    height, width = image.shape[1:]
    if y < -1 or x < -1 or y > height or x > width:
        return np.zeros(len(image))
    y, x = min(max(y, 0), height - 1), min(max(x, 0), width - 1)
    top, left = int(y), int(x)
    down, right = min(top + 1, height - 1), min(left + 1, width - 1)
    upper = image[:, top, left] * (1 - x + left) + image[:, top, right] * (x - left)
    lower = image[:, down, left] * (1 - x + left) + image[:, down, right] * (x - left)
    return upper * (1 - y + top) + lower * (y - top)


def _aligned(x: np.ndarray, regions: np.ndarray, bins: tuple[int, int], scale: float, ratio: int, mode: str
             ) -> np.ndarray:
    out = np.zeros((len(regions), x.shape[1], *bins), "float32")
    for at, (image, *corners) in enumerate(regions):
        x1, y1, x2, y2 = np.array(corners) * scale
        steps = np.maximum([y2 - y1, x2 - x1], 1) / bins
        grid = [ratio, ratio] if ratio > 0 else [int(np.ceil(step)) for step in steps]
        for place in np.ndindex(*bins):
            samples = [
                _sample(x[int(image)], *(np.array([y1, x1]) + (np.array(place) + (np.array(at_) + 0.5) / grid) * steps))
                for at_ in np.ndindex(*grid)
            ]
            out[at, :, place[0], place[1]] = np.mean(samples, 0) if mode == "avg" else np.max(samples, 0)
    return out


def test_roi_align() -> None:
    x = _RANDOM.standard_normal((2, 3, 8, 9)).astype("float32")
    corners = [[0, 1.3, 2.1, 13.4, 11.9], [1, 0, 0, 17, 15], [1, 6, 7, 6.3, 7.2], [0, -3, -4, 30, 20]]
    regions = np.array(corners, "float32")
    settings = [(2, "avg"), (-1, "avg"), (3, "max")]
    check([
        *(Case("vision.roi_align", [x, regions], _aligned(x, regions, (3, 2), 0.5, ratio, mode),
               {"pooled_size": (3, 2), "spatial_scale": 0.5, "sample_ratio": ratio, "mode": mode}, tolerance=1e-5)
          for ratio, mode in settings),
        Case("vision.roi_align", [x.transpose(0, 2, 3, 1).copy(), regions],
             _aligned(x, regions, (3, 2), 0.5, 2, "avg").transpose(0, 2, 3, 1).copy(),
             {"pooled_size": (3, 2), "spatial_scale": 0.5, "sample_ratio": 2, "layout": "NHWC"}, tolerance=1e-5),
    ])


def test_roi_pool() -> None:
    x = _RANDOM.standard_normal((2, 3, 8, 9)).astype("float32")
    # Halves of odd numbers lie in the middle between two pixels.
    regions = np.array([[0, 1, 3, 13, 11], [1, 0, 0, 16, 14], [1, 5, 7, 5, 7], [0, 30, 30, 40, 40]], "float32")
    want = np.zeros((4, 3, 3, 2), "float32")
    for at, (image, *corners) in enumerate(regions):
        x1, y1, x2, y2 = (int(np.floor(c * 0.5 + 0.5)) for c in corners)
        steps = (max(y2 - y1 + 1, 1) / 3, max(x2 - x1 + 1, 1) / 2)
        for row, column in np.ndindex(3, 2):
            top, bottom = (np.clip(e + y1, 0, 8) for e in (int(np.floor(row * steps[0] + 1e-5)),
                                                           int(np.ceil((row + 1) * steps[0] - 1e-5))))
            left, right = (np.clip(e + x1, 0, 9) for e in (int(np.floor(column * steps[1] + 1e-5)),
                                                           int(np.ceil((column + 1) * steps[1] - 1e-5))))
            part = x[int(image), :, top:bottom, left:right]
            want[at, :, row, column] = part.max((1, 2)) if part.size else 0
    check([Case("vision.roi_pool", [x, regions], want, {"pooled_size": (3, 2), "spatial_scale": 0.5})])


def test_yolo_reorg() -> None:
    """Darknet's loop for its `reorg` backwards, which is what the layer computes forwards."""
    n, c, h, w, s = 2, 8, 4, 6, 2
    x = _RANDOM.standard_normal((n, c, h, w)).astype("float32")
    flat, out = x.reshape(-1), np.empty(x.size, "float32")
    for b, k, j, i in np.ndindex(n, c, h, w):
        place, offset = k % (c // s**2), k // (c // s**2)
        row, column = j * s + offset // s, i * s + offset % s
        out[i + w * (j + h * (k + c * b))] = flat[column + w * s * (row + h * s * (place + c // s**2 * b))]
    check([Case("vision.yolo_reorg", [x], out.reshape(n, c * s**2, h // s, w // s), {"stride": s})])


def test_wrong_operands_are_refused() -> None:
    data, counts, places = _detections(4), np.array([4, 4], "int32"), np.zeros((2, 4), "int32")
    limit, overlap = np.array(-1, "int32"), np.array(0.5, "float32")
    assert "not constant" in refused("vision.non_max_suppression", data, counts, places, limit, overlap)
    refused("vision.non_max_suppression", data, counts, places, limit, Known(np.array(0, "float32")))
    refused("vision.get_valid_counts", data, Known(overlap), score_index=6)
    operands = (data[..., 2:], data[..., 0][:, None], limit, Known(overlap), overlap)
    refused("vision.all_class_non_max_suppression", *operands, output_format="torch")
    x, regions = np.zeros((1, 4, 4, 4), "float32"), np.zeros((2, 4), "float32")
    refused("vision.roi_align", x, regions, pooled_size=(2, 2))
    refused("vision.roi_align", x, np.zeros((2, 5), "float32"), pooled_size=(2, 2), mode="min")
    refused("vision.roi_pool", x, np.zeros((2, 5), "float32"), pooled_size=(2, 2), layout="NHWC")
    refused("vision.yolo_reorg", x, stride=3)
