"""Equal computations are done once, and such as differ in one byte of a weight are not."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

from fusion.passes.merge_equal import MergeEqual
from tests.passes.modules import calls, canonical, evaluate_both, module

X = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
WEIGHT = np.random.default_rng(1).standard_normal((64, 64)).astype(np.float32)


def products(builder: relax.BlockBuilder, x: relax.Expr, *weights: np.ndarray) -> relax.Expr:
    made = [builder.emit(op.matmul(x, relax.const(weight))) for weight in weights]
    return builder.emit(op.concat(made, axis=0))


def count(name: str, mod: object) -> int:
    return sum(str(value.op.name) == f"relax.{name}" for _, value in calls(mod))


def test_weights_of_equal_bytes_make_one_product() -> None:
    mod = module(lambda b, x: products(b, x, WEIGHT, WEIGHT.copy()), [X])
    merged = canonical(MergeEqual()(mod))
    assert (count("matmul", mod), count("matmul", merged)) == (2, 1)
    assert [str(var.name) for var in merged["main"].params] == [str(var.name) for var in mod["main"].params]
    for got, want in zip(*evaluate_both(merged, mod, [X]), strict=True):
        np.testing.assert_array_equal(got, want)


def test_weights_that_differ_in_their_last_byte_make_two() -> None:
    other = WEIGHT.copy()
    other[-1, -1] += 1
    mod = module(lambda b, x: products(b, x, WEIGHT, other), [X])
    assert count("matmul", canonical(MergeEqual()(mod))) == 2
