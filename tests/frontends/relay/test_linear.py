from __future__ import annotations

import numpy as np

from tests.frontends.relay.operators import Case, check, refused
from tests.frontends.relay.test_convolution import random


def test_products() -> None:
    a, w, packed = random(3, 5), random(8, 5), random(8, 5)
    deep = random(2, 3, 5)
    tiled = packed.reshape(2, 4, 5).transpose(0, 2, 1)
    left, right = random(2, 3, 5), random(2, 4, 5)
    flipped = np.ascontiguousarray(left.transpose(0, 2, 1))
    check(
        [
            Case("nn.dense", [a, w], a @ w.T, {"units": 8}),
            Case("nn.dense", [deep, w], deep @ w.T, {"units": None}),
            Case("nn.contrib_dense_pack", [a, tiled], a @ packed.T, {"weight_layout": "NC4n"}),
            Case("nn.matmul", [a, w], a @ w.T, {"transpose_b": True}),
            Case("nn.matmul", [np.ascontiguousarray(a.T), np.ascontiguousarray(w.T)], a @ w.T, {"transpose_a": True}),
            Case("nn.batch_matmul", [left, right], left @ right.transpose(0, 2, 1), {"transpose_b": True}),
            Case("nn.batch_matmul", [flipped, right.transpose(0, 2, 1)], left @ right.transpose(0, 2, 1),
                 {"transpose_a": True}),
            Case("nn.batch_matmul", [left[:1], right], left[:1] @ right.transpose(0, 2, 1), {"transpose_b": True}),
            # As TVM 0.7 writes it.
            Case("nn.batch_matmul", [left, right], left @ right.transpose(0, 2, 1)),
        ]
    )


def test_dtypes_of_products() -> None:
    a, w = random(3, 5, dtype="int8"), random(4, 5, dtype="int8")
    half, weight = random(3, 5, dtype="float16"), random(4, 5, dtype="float16")
    wanted = half.astype("float32") @ weight.astype("float32").T
    check(
        [
            Case("nn.dense", [a, w], a.astype("int32") @ w.astype("int32").T, {"out_dtype": "int32"}),
            Case("nn.dense", [half, weight], wanted, {"out_dtype": "float32"}),
            Case("nn.dense", [half, weight], wanted.astype("float16"), tolerance=1e-3),
        ]
    )


def test_what_is_refused() -> None:
    assert "no product" in refused("nn.dense", random(3, 5), random(4, 6))
    assert "not 3" in refused("nn.batch_matmul", random(3, 5), random(4, 6))
