"""A mean of integers ended in an error of TVM's, as the division was ambiguous; its sum must not overflow either."""

from __future__ import annotations

import numpy as np
import tvm
from tvm.script import relax as R

import fusion


@tvm.script.ir_module
class Means:
    @R.function
    def main(x: R.Tensor((3, 7), "int32"), y: R.Tensor((3, 300), "int8")) -> R.Tuple(
        R.Tensor((3,), "int32"), R.Tensor((3, 1), "int8")
    ):
        with R.dataflow():
            whole = R.mean(x, axis=[1])
            narrow = R.mean(y, axis=[1], keepdims=True)
            R.output(whole, narrow)
        return (whole, narrow)


def test_means_are_rounded_towards_zero() -> None:
    rng = np.random.default_rng(0)
    x, y = rng.integers(-99, 99, (3, 7)).astype(np.int32), rng.integers(-128, 127, (3, 300)).astype(np.int8)
    y[2] = 127
    whole, narrow = fusion.compile(Means)(x, y)
    np.testing.assert_array_equal(whole, np.trunc(x.mean(1)).astype(np.int32))
    np.testing.assert_array_equal(narrow, np.trunc(y.mean(1, keepdims=True)).astype(np.int8))
