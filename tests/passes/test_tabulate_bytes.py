"""Functions of one byte become look-ups, with the same results; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.passes.tabulate_bytes import TabulateBytes
from tests.passes.modules import Build, apply, names, unchanged
from tests.passes.test_multiply_bytes import drawn, number, quantised, rows


def gelu(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """A GELU by tanh of dequantised bytes."""
    wide = rows(b, x, 3)
    cube = b.emit(op.multiply(b.emit(op.power(wide, number(3))), number(0.0447)))
    inner = b.emit(op.clip(b.emit(op.multiply(b.emit(op.add(wide, cube)), number(0.798))), -5.0, 5.0))
    return b.emit(op.multiply(wide, b.emit(op.add(b.emit(op.tanh(inner)), number(1)))))


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
def test_a_function_of_one_byte_is_looked_up(dtype: str) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return quantised(b, gelu(b, x), 0.02, -5)

    mod = apply(TabulateBytes(), build, [drawn(dtype, 7, 50)])
    assert names(mod) == ["call_tir"]


def test_quantised_steps_become_one_table() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        inner = b.emit(quantised(b, gelu(b, x), 0.02, -5))
        return quantised(b, b.emit(op.sigmoid(b.emit(op.negative(rows(b, inner, 2))))), 0.004, -128)

    mod = apply(TabulateBytes(), build, [drawn("int8", 7, 50)])
    assert names(mod) == ["call_tir"]


def hard_swish(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    """What is part of a convolution's kernel, where a table would end it."""
    wide = rows(b, x, 3)
    gate = b.emit(op.clip(b.emit(op.add(b.emit(op.multiply(wide, number(1 / 6))), number(0.5))), 0.0, 1.0))
    return quantised(b, b.emit(op.multiply(wide, gate)), 0.02, -5)


OTHERS: dict[str, Build] = {
    "two tensors": lambda b, x: quantised(
        b, b.emit(op.tanh(b.emit(op.add(gelu(b, x), rows(b, b.emit(op.permute_dims(x)), 1))))), 0.1, 0
    ),
    "one function": lambda b, x: quantised(b, b.emit(op.tanh(rows(b, x, 1))), 0.1, 0),
    "many cheap operators": hard_swish,
    "a row of numbers": lambda b, x: quantised(
        b, b.emit(op.multiply(gelu(b, x), relax.const(np.ones(9, "float32")))), 0.1, 0
    ),
    "steps of bytes": lambda b, x: op.add(x, relax.const(np.int8(100))),
    "elements that move": lambda b, x: quantised(
        b, b.emit(op.add(b.emit(op.reshape(gelu(b, x), (81,))), number(1))), 0.1, 0
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    unchanged(TabulateBytes(), OTHERS[name], [drawn("int8", 9, 9)])
