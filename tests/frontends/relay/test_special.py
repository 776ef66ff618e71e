from __future__ import annotations

import numpy as np
import torch
import torch.nn.functional as F

from tests.frontends.relay.operators import Case, Known, check, refused
from tests.frontends.relay.test_convolution import random


def test_losses() -> None:
    p, t = np.abs(random(3, 4)) + 0.1, np.abs(random(3, 4))
    scores, classes, weights = random(2, 4, 3), np.array([[0, 3, 1], [2, -100, 1]]), np.abs(random(4))
    tensors = torch.from_numpy(scores), torch.from_numpy(classes), torch.from_numpy(weights)
    cases = [
        Case("nn.cross_entropy", [p, t], np.float32(-(np.log(p) * t).sum() / 3)),
        Case("nn.cross_entropy_with_logits", [p, t], np.float32(-(p * t).sum() / 3)),
    ]
    for reduction in ("mean", "sum", "none"):
        wanted = F.nll_loss(*tensors, reduction=reduction).numpy()
        attributes = {"reduction": reduction, "ignore_index": -100}
        cases.append(Case("nn.nll_loss", [scores, classes, weights], wanted, attributes))
    check(cases)


def test_buffers_and_gaps() -> None:
    new, old, x = random(2, 1, 3), random(2, 4, 3), random(2, 3)
    apart = np.full((3, 7), 9, np.float32)
    apart[::2, ::3] = x
    check(
        [
            Case("nn.fifo_buffer", [new, old], np.concatenate([old[:, 1:], new], 1), {"axis": 1}),
            Case("nn.dilate", [x], apart, {"strides": (2, 3), "dilation_value": 9.0}),
        ]
    )


def test_correlation() -> None:
    a, b = random(1, 2, 5, 5), random(1, 2, 5, 5)
    padded = np.pad(b, ((0, 0), (0, 0), (1, 1), (1, 1)))
    shifted = [padded[:, :, row : row + 5, column : column + 5] for row in range(3) for column in range(3)]
    wanted = np.stack([(a * other).mean(1) for other in shifted], 1)
    check([Case("nn.correlation", [a, b], wanted, {"padding": (1, 1), "max_displacement": 1})])


def test_sparse_weights() -> None:
    x, dense = random(3, 6), random(4, 6) * (random(4, 6) > 0)
    columns = np.concatenate([np.flatnonzero(row) for row in dense]).astype("int32")
    starts = np.cumsum([0, *(np.count_nonzero(row) for row in dense)]).astype("int32")
    stored = [Known(dense[dense != 0]), Known(columns), Known(starts)]
    blocks = random(2, 2, 3)
    blocky = np.zeros((4, 6), np.float32)
    blocky[:2, 3:], blocky[2:, :3] = blocks
    kept = [Known(blocks), Known(np.array([1, 0], "int32")), Known(np.array([0, 1, 2], "int32"))]
    image = random(1, 2, 2, 6)
    square = dense[:, :4]
    places = np.concatenate([np.flatnonzero(row) for row in square]).astype("int32")
    begins = np.cumsum([0, *(np.count_nonzero(row) for row in square)]).astype("int32")
    turned = np.ascontiguousarray(square.T)
    check(
        [
            Case("nn.sparse_dense", [x, *stored], x @ dense.T),
            Case("nn.sparse_dense", [x, *kept], x @ blocky.T),
            Case("nn.sparse_dense", [x, *stored], dense @ x.T, {"sparse_lhs": True}),
            Case("nn.sparse_add", [dense, *stored], dense * 2),
            Case("nn.sparse_conv2d", [image, *kept], image @ blocky.T),
            Case(
                "nn.sparse_transpose",
                [Known(square[square != 0]), Known(places), Known(begins)],
                [
                    turned[turned != 0],
                    np.concatenate([np.flatnonzero(row) for row in turned]).astype("int32"),
                    np.cumsum([0, *(np.count_nonzero(row) for row in turned)]).astype("int32"),
                ],
            ),
        ]
    )
    assert "not constant" in refused("nn.sparse_dense", x, dense[dense != 0], columns, starts)


def test_integers_of_few_bits() -> None:
    rng = np.random.default_rng(4)
    a, w = rng.integers(0, 4, (3, 32)).astype("uint8"), rng.integers(0, 2, (5, 32)).astype("uint8")
    image, kernel = rng.integers(0, 4, (1, 8, 5, 5)).astype("int16"), rng.integers(0, 2, (4, 8, 3, 3)).astype("int16")
    signs = F.conv2d(torch.from_numpy(image).double(), torch.from_numpy(kernel * 2 - 1).double(), padding=1).numpy()
    product = a.astype("int16") @ w.T.astype("int16")
    bits = (a[:, None] >> np.arange(2).reshape(1, 2, 1)) & 1
    packed = np.packbits(bits.astype("uint8"), axis=2)
    check(
        [
            Case("nn.bitserial_dense", [a, w], product, {"data_bits": 2, "unipolar": False, "out_dtype": "int16"}),
            Case("nn.bitserial_dense", [a, w], a.astype("int16") @ (w.T.astype("int16") * 2 - 1), {"data_bits": 2}),
            Case("nn.bitserial_conv2d", [image, kernel], signs.astype("int16"),
                 {"activation_bits": 2, "padding": (1, 1), "channels": 4}),
            Case("nn.bitpack", [a], packed, {"bits": 2, "pack_axis": 1, "bit_axis": 1, "pack_type": "uint8"}),
        ]
    )
