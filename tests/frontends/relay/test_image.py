"""Image operators against ONNX Runtime, torch and definitions."""

from __future__ import annotations

import itertools

import numpy as np
import onnxruntime
import pytest
import torch
from onnx import TensorProto, helper

from tests.frontends.relay.operators import Case, Known, check, refused

_RANDOM = np.random.default_rng(17)
_X = _RANDOM.standard_normal((2, 3, 5, 4)).astype("float32")
_TRANSFORMS = (
    "half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel", "tf_half_pixel_for_nn", "tf_crop_and_resize",
)  # fmt: skip
# Relay's name and ONNX's.
_ROUNDINGS = {
    "round": "round_prefer_ceil", "floor": "floor", "ceil": "ceil", "round_prefer_floor": "round_prefer_floor",
    "round_prefer_ceil": "round_prefer_ceil",
}  # fmt: skip
_SIZES = [(7, 9), (3, 2), (10, 8), (6, 1)]
_REGION = (0.1, -0.2, 1.2, 0.8)


def _onnx(size: tuple[int, int], **attributes: object) -> np.ndarray:
    """ONNX Runtime's Resize of `_X` in opset 11, the last with all transformations."""
    region = [0, 0, *_REGION[:2], 1, 1, *_REGION[2:]]
    constants = [
        helper.make_tensor("roi", TensorProto.FLOAT, (8,), region),
        helper.make_tensor("scales", TensorProto.FLOAT, (0,), []),
        helper.make_tensor("sizes", TensorProto.INT64, (4,), (2, 3, *size)),
    ]
    node = helper.make_node("Resize", ["x", "roi", "scales", "sizes"], ["y"], **attributes)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, 4 * [None]) for name in "xy"]
    graph = helper.make_graph([node], "resize", values[:1], values[1:], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 11)], ir_version=8)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, {"x": _X})[0]


@pytest.mark.parametrize("size", _SIZES)
def test_nearest_neighbours(size: tuple[int, int]) -> None:
    cases = []
    for transform, (rounding, theirs) in itertools.product(_TRANSFORMS, _ROUNDINGS.items()):
        if transform == "align_corners" and 1 in size:
            continue
        want = _onnx(size, mode="nearest", coordinate_transformation_mode=transform, nearest_mode=theirs,
                     extrapolation_value=9.0)
        given = {"size": size, "layout": "NCHW", "method": "nearest_neighbor", "rounding_method": rounding,
                 "coordinate_transformation_mode": transform, "roi": _REGION, "extrapolation_value": 9.0}
        cases.append(Case("image.resize2d", [_X], want, given))
    check(cases)


@pytest.mark.parametrize("size", _SIZES)
def test_interpolations(size: tuple[int, int]) -> None:
    cases = []
    modes = [("linear", {}, {}), ("cubic", {"cubic_coeff_a": -0.5}, {}),
             ("cubic", {"cubic_coeff_a": -0.75, "exclude_outside": 1}, {"cubic_alpha": -0.75, "cubic_exclude": 1})]
    for transform, (mode, theirs, ours) in itertools.product(_TRANSFORMS, modes):
        if transform == "align_corners" and 1 in size:
            continue
        # ONNX Runtime's linear mode has no outside, its cubic one no region.
        if transform == "tf_half_pixel_for_nn" or (transform == "tf_crop_and_resize" and mode == "cubic"):
            continue
        want = _onnx(size, mode=mode, coordinate_transformation_mode=transform, extrapolation_value=9.0, **theirs)
        given = {"size": size, "layout": "NCHW", "method": mode, "coordinate_transformation_mode": transform,
                 "roi": _REGION, "extrapolation_value": 9.0, **ours}
        cases.append(Case("image.resize2d", [_X], want, given, tolerance=1e-5))
    check(cases)


def _torch(x: np.ndarray, size: tuple[int, ...], mode: str, **more: bool) -> np.ndarray:
    return torch.nn.functional.interpolate(torch.from_numpy(x), size, mode=mode, **more).numpy()


def test_other_ranks_and_layouts() -> None:
    line, block = _X[:, :, :, 0].copy(), _RANDOM.standard_normal((1, 2, 3, 4, 5)).astype("float32")
    twice, wide = _torch(_X, (10, 8), "nearest"), _torch(_X, (7, 9), "bilinear", align_corners=True)
    last = _X.transpose(0, 2, 3, 1).copy()
    blocked = _RANDOM.standard_normal((1, 2, 3, 4, 4)).astype("float32")
    whole = _RANDOM.integers(0, 255, (1, 2, 4, 4)).astype("uint8")
    up = {"method": "nearest_neighbor", "coordinate_transformation_mode": "asymmetric", "rounding_method": "floor"}
    check([
        Case("image.resize1d", [line], _torch(line, (9,), "linear"), {"size": (9,)}),
        Case("image.resize1d", [line.transpose(0, 2, 1).copy()],
             _torch(line, (9,), "linear").transpose(0, 2, 1).copy(), {"size": (9,), "layout": "NWC"}),
        Case("image.resize3d", [block], _torch(block, (5, 3, 6), "trilinear"), {"size": (5, 3, 6)}),
        Case("image.resize3d", [block.transpose(0, 2, 3, 4, 1).copy()],
             _torch(block, (6, 8, 5), "nearest").transpose(0, 2, 3, 4, 1).copy(),
             {**up, "size": (6, 8, 5), "layout": "NDHWC"}),
        Case("image.resize2d", [last], twice.transpose(0, 2, 3, 1).copy(), {**up, "size": (10, 8), "layout": "NHWC"}),
        Case("image.resize2d", [_X], twice, {**up, "size": (10, 8), "rounding_method": ""}),
        Case("image.resize2d", [last], wide.transpose(0, 2, 3, 1).copy(),
             {"size": (7, 9), "layout": "NHWC", "coordinate_transformation_mode": "align_corners"}),
        Case("image.resize2d", [blocked], blocked.repeat(2, 2).repeat(3, 3),
             {**up, "size": (6, 12), "layout": "NCHW4c"}),
        Case("image.resize2d", [whole], whole.repeat(2, 2), {**up, "size": (8, 4)}),
        Case("image.resize2d", [whole], _torch(whole.astype("float32"), (8, 8), "bilinear").astype("uint8"),
             {"size": (8, 8)}),
        Case("image.resize2d", [whole], _torch(whole.astype("float32"), (7, 9), "bilinear"),
             {"size": (7, 9), "out_dtype": "float32"}, tolerance=1e-5),
        Case("dyn.image.resize2d", [_X, Known(np.array([10, 8], "int64")), Known(np.zeros(4, "float32"))], twice, up),
        Case("image.resize", [_X], _torch(_X, (7, 9), "bilinear"), {"size": (7, 9)}),
        Case("image.resize", [last], twice.transpose(0, 2, 3, 1).copy(),
             {"size": (10, 8), "layout": "NHWC", "method": "nearest_neighbor",
              "coordinate_transformation_mode": "asymmetric"}),
    ])
    assert "half pixels" in refused("image.resize", _X, size=(7, 9), method="nearest_neighbor")


def _cropped(x: np.ndarray, box: np.ndarray, size: tuple[int, int], method: str, fill: float) -> np.ndarray:
    """TensorFlow's crop_and_resize of one image [C, H, W], pixel by pixel."""
    out = np.full((x.shape[0], *size), fill, "float32")
    last = np.array(x.shape[1:]) - 1
    for place in np.ndindex(*size):
        y, x_ = box[:2] * last + np.array(place) * (box[2:] - box[:2]) * last / (np.array(size) - 1)
        if not (0 <= y <= last[0] and 0 <= x_ <= last[1]):
            continue
        if method == "nearest_neighbor":
            out[:, place[0], place[1]] = x[:, int(y + 0.5), int(x_ + 0.5)]
            continue
        top, left = int(y), int(x_)
        down, right = min(top + 1, last[0]), min(left + 1, last[1])
        upper = x[:, top, left] * (1 - x_ + left) + x[:, top, right] * (x_ - left)
        lower = x[:, down, left] * (1 - x_ + left) + x[:, down, right] * (x_ - left)
        out[:, place[0], place[1]] = upper * (1 - y + top) + lower * (y - top)
    return out


def test_crop_and_resize() -> None:
    boxes = np.array([[0.1, 0.13, 0.87, 0.92], [-0.2, 0.3, 1.1, 0.6], [0.9, 0.8, 0.15, 0.05]], "float32")
    images = np.array([1, 0, 1], "int32")
    pairs = list(zip(images, boxes, strict=True))
    want = {method: np.stack([_cropped(_X[at], box, (4, 6), method, 2.5) for at, box in pairs])
            for method in ("bilinear", "nearest_neighbor")}
    check([
        *(Case("image.crop_and_resize", [_X, boxes, images], result,
               {"crop_size": (4, 6), "method": method, "extrapolation_value": 2.5}) for method, result in want.items()),
        Case("image.crop_and_resize", [_X.transpose(0, 2, 3, 1).copy(), boxes, images],
             want["bilinear"].transpose(0, 2, 3, 1).copy(),
             {"crop_size": (4, 6), "extrapolation_value": 2.5, "layout": "NHWC"}),
    ])


@pytest.mark.parametrize("padding", ["zeros", "border", "reflection"])
def test_grid_sample(padding: str) -> None:
    block = _RANDOM.standard_normal((2, 3, 4, 5, 6)).astype("float32")
    grid = _RANDOM.uniform(-1.4, 1.4, (2, 6, 7, 2)).astype("float32")
    deep = _RANDOM.uniform(-1.4, 1.4, (2, 3, 4, 5, 3)).astype("float32")
    cases = []
    for corners, (x, places, methods) in itertools.product(
        (True, False), ((_X, grid, ("nearest", "bilinear", "bicubic")), (block, deep, ("nearest", "bilinear")))
    ):
        for method in methods:
            if padding == "reflection" and method == "bicubic":
                continue  # TVM's own kernel, which runs here, takes 3 s to compile, and without corners 9 s.
            want = torch.nn.functional.grid_sample(
                torch.from_numpy(x), torch.from_numpy(places), method, padding, corners
            ).numpy()
            given = {"method": method, "padding_mode": padding, "align_corners": corners,
                     "layout": "NCHW" if x.ndim == 4 else "NCDHW"}
            cases.append(Case("image.grid_sample", [x, np.moveaxis(places, -1, 1).copy()], want, given, tolerance=1e-5))
    check(cases)


def test_affine_grid() -> None:
    theta = _RANDOM.standard_normal((2, 2, 3)).astype("float32")
    want = torch.nn.functional.affine_grid(torch.from_numpy(theta), [2, 3, 5, 4], align_corners=True).numpy()
    check([Case("image.affine_grid", [theta], np.moveaxis(want, -1, 1).copy(), {"target_shape": (5, 4)})])


def _dilated(x: np.ndarray, w: np.ndarray, strides: tuple[int, int], pads: tuple[int, ...], steps: tuple[int, int]
             ) -> np.ndarray:
    top, left, bottom, right = pads
    x = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    spans = [(size - 1) * step + 1 for size, step in zip(w.shape[1:], steps, strict=True)]
    windows = np.lib.stride_tricks.sliding_window_view(x, spans, (2, 3))
    windows = windows[:, :, :: strides[0], :: strides[1], :: steps[0], :: steps[1]]
    return (windows + w[None, :, None, None]).max((-2, -1))


def test_dilation() -> None:
    weight = _RANDOM.standard_normal((3, 2, 3)).astype("float32")
    plain = _dilated(_X, weight, (1, 1), (0, 0, 0, 0), (1, 1))
    wide = _dilated(_X, weight, (2, 1), (1, 2, 0, 1), (2, 1))
    check([
        Case("image.dilation2d", [_X, weight], plain),
        Case("image.dilation2d", [_X, weight], wide,
             {"strides": (2, 1), "padding": (1, 2, 0, 1), "dilations": (2, 1)}),
        Case("image.dilation2d", [_X.transpose(0, 2, 3, 1).copy(), weight.transpose(1, 2, 0).copy()],
             wide.transpose(0, 2, 3, 1).copy(),
             {"strides": (2, 1), "padding": (1, 2, 0, 1), "dilations": (2, 1), "data_layout": "NHWC",
              "kernel_layout": "HWI"}),
    ])


def test_wrong_operands_are_refused() -> None:
    refused("image.resize2d", _X, size=(4,))
    refused("image.resize2d", _X, size=(4, 4), layout="NCW")
    assert "lanczos" in refused("image.resize2d", _X, size=(4, 4), method="lanczos")
    refused("image.resize2d", _X, size=(4, 4), coordinate_transformation_mode="middle")
    refused("image.resize2d", _X, size=(4, 4), method="nearest_neighbor", rounding_method="up")
    refused("dyn.image.resize2d", _X, np.array([4, 4]))
    boxes = np.zeros((2, 4), "float32")
    refused("image.crop_and_resize", _X, boxes, np.zeros(2, "int32"), crop_size=(1, 4))
    refused("image.crop_and_resize", _X, boxes, np.zeros(3, "int32"), crop_size=(4, 4))
    refused("image.grid_sample", _X, np.zeros((2, 3, 4, 4), "float32"))
    refused("image.grid_sample", _X, np.zeros((2, 2, 4, 4), "float32"), padding_mode="wrap")
    refused("image.affine_grid", np.zeros((2, 3, 4), "float32"), target_shape=(4, 4))
    refused("image.dilation2d", _X, np.zeros((3, 2, 2), "float32"), data_layout="NHWC")
