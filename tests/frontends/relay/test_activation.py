from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, Known, check, refused
from tests.frontends.relay.test_convolution import move, random


def test_activations() -> None:
    x, slope, bias = random(2, 3, 4), random(3), random(3)
    whole, turned = random(2, 3, dtype="int32"), np.ascontiguousarray(x.transpose(0, 2, 1))
    check(
        [
            Case("nn.relu", [x], np.maximum(x, 0)),
            Case("nn.relu", [whole], np.maximum(whole, 0)),
            Case("nn.leaky_relu", [x], np.where(x > 0, x, x * np.float32(0.25))),
            Case("nn.leaky_relu", [x], np.where(x > 0, x, x * np.float32(0.1)), {"alpha": 0.1}),
            Case("nn.prelu", [x, slope], np.where(x > 0, x, x * slope.reshape(1, 3, 1))),
            Case("nn.prelu", [turned, slope], np.where(turned > 0, turned, turned * slope), {"axis": -1}),
            Case("nn.bias_add", [x, bias], x + bias.reshape(1, 3, 1)),
            Case("nn.bias_add", [turned, bias], turned + bias, {"axis": -1}),
            Case("nn.dropout", [x], [x, np.ones_like(x)], {"rate": 0.3}),
            Case("nn.batch_flatten", [x], x.reshape(2, 12)),
        ]
    )


def test_pads() -> None:
    x, whole = random(2, 3, 4), random(2, 3, dtype="int8")
    widths = ((0, 0), (1, 2), (2, 0))
    check(
        [
            Case("nn.pad", [x, Known(np.float32(1.5))], np.pad(x, widths, constant_values=1.5), {"pad_width": widths}),
            Case("nn.pad", [whole, Known(np.int32(7))], np.pad(whole, ((1, 0), (0, 2)), constant_values=7),
                 {"pad_width": ((1, 0), (0, 2))}),
            Case("nn.pad", [x], np.pad(x, widths, constant_values=3), {"pad_width": widths, "pad_value": 3.0}),
            Case("nn.pad", [x, Known(np.float32(0))], np.pad(x[:, 1:], ((0, 0), (0, 1), (0, 0))),
                 {"pad_width": ((0, 0), (-1, 1), (0, 0))}),
            Case("nn.pad", [x, Known(np.float32(0))], np.pad(x, widths, "edge"),
                 {"pad_width": widths, "pad_mode": "edge"}),
            Case("nn.pad", [x, Known(np.float32(0))], np.pad(x, widths, "reflect"),
                 {"pad_width": widths, "pad_mode": "reflect"}),
            Case("nn.mirror_pad", [x], np.pad(x, widths, "symmetric"), {"pad_width": widths}),
            Case("dyn.nn.pad", [x, Known(np.array(widths)), Known(np.float32(2))],
                 np.pad(x, widths, constant_values=2)),
            Case("nn.mirror_pad", [x], np.pad(x, widths, "reflect"), {"pad_width": widths, "mode": "REFLECT"}),
        ]
    )
    assert "not a pair" in refused("nn.pad", x, Known(np.float32(0)), pad_width=((1, 1),))


def test_depth_and_space() -> None:
    x = random(2, 8, 3, 4)
    rows = F.pixel_shuffle(torch.from_numpy(x), 2).numpy()
    columns = x.reshape(2, 2, 2, 2, 3, 4).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 6, 8)
    check(
        [
            Case("nn.depth_to_space", [x], columns, {"block_size": 2}),
            Case("nn.depth_to_space", [x], rows, {"block_size": 2, "mode": "CDR"}),
            Case("nn.depth_to_space", [move(x, "NCHW", "NHWC")], move(columns, "NCHW", "NHWC"),
                 {"block_size": 2, "layout": "NHWC"}),
            Case("nn.space_to_depth", [columns], x, {"block_size": 2}),
            Case("nn.space_to_depth", [move(columns, "NCHW", "NHWC")], move(x, "NCHW", "NHWC"),
                 {"block_size": 2, "layout": "NHWC"}),
        ]
    )
    assert "blocks" in refused("nn.depth_to_space", x, block_size=3)


def test_space_and_batch() -> None:
    x = np.arange(1, 17, dtype=np.float32).reshape(1, 4, 4, 1)
    apart = np.stack([x[0, row::2, column::2] for row in (0, 1) for column in (0, 1)])
    tall = random(1, 3, 2, 2)
    padded = np.pad(tall, ((0, 0), (1, 0), (0, 0), (0, 0)), constant_values=5)
    moved = np.concatenate([padded[:, row::2] for row in (0, 1)])
    check(
        [
            Case("nn.space_to_batch_nd", [x], apart, {"block_shape": (2, 2), "paddings": ((0, 0), (0, 0))}),
            Case("nn.batch_to_space_nd", [apart], x, {"block_shape": (2, 2), "crops": ((0, 0), (0, 0))}),
            Case("nn.batch_to_space_nd", [apart], x[:, 1:, :-1], {"block_shape": (2, 2), "crops": ((1, 0), (0, 1))}),
            Case("nn.space_to_batch_nd", [tall], moved, {"block_shape": (2,), "paddings": ((1, 0),), "pad_value": 5.0}),
            Case("nn.batch_to_space_nd", [moved], tall, {"block_shape": (2,), "crops": ((1, 0),)}),
        ]
    )


def test_upsampling() -> None:
    x, deep = random(1, 2, 3, 4), random(1, 2, 2, 3, 2)
    tensor = torch.from_numpy(x)
    twice = x.repeat(2, 2).repeat(3, 3)
    smooth = F.interpolate(tensor, scale_factor=(2, 3), mode="bilinear", align_corners=True).numpy()
    # Pixels at their corners: the first of two lies on a pixel, the second half way to the next one, or to itself.
    middle = (x + np.concatenate([x[:, :, 1:], x[:, :, -1:]], 2)) / 2
    between = np.stack([x, middle], 3).reshape(1, 2, 6, 4)
    cubes = F.interpolate(torch.from_numpy(deep), scale_factor=(2, 2, 2), mode="trilinear").numpy()
    check(
        [
            Case("nn.upsampling", [x], twice, {"scale_h": 2.0, "scale_w": 3}),
            Case("nn.upsampling", [move(x, "NCHW", "NHWC")], move(twice, "NCHW", "NHWC"),
                 {"scale_h": 2, "scale_w": 3, "layout": "NHWC"}),
            Case("nn.upsampling", [x], smooth,
                 {"scale_h": 2, "scale_w": 3, "method": "bilinear", "align_corners": True}, 1e-5),
            Case("dyn.nn.upsampling", [x, Known(np.float32(2)), Known(np.float32(3))], twice),
            Case("nn.upsampling", [x], between, {"scale_h": 2, "scale_w": 1, "method": "bilinear"}),
            Case("nn.upsampling3d", [deep], cubes, {"scale_d": 2, "scale_h": 2, "scale_w": 2, "method": "trilinear"}),
            Case("nn.upsampling3d", [deep], deep.repeat(2, 2).repeat(2, 3).repeat(2, 4),
                 {"scale_d": 2, "scale_h": 2, "scale_w": 2, "coordinate_transformation_mode": "asymmetric"}),
        ]
    )
