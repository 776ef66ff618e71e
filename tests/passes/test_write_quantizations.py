"""Quantisations by one known scale become arithmetic on single elements, with the same results; others stay."""

from __future__ import annotations

import numpy as np
import pytest
from tvm import relax
from tvm.relax import op

from fusion.passes.write_quantizations import WriteQuantizations
from tests.passes.modules import Build, apply, names, normal, unchanged
from tests.passes.test_multiply_bytes import drawn, number, rows


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("zero", [0, 7])
def test_quantisations_are_written_out(dtype: str, zero: int) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        bytes_of_x = b.emit(op.quantize(x, number(0.03), number(zero, dtype), -1, dtype))
        return op.multiply(rows(b, bytes_of_x, zero), number(0.5))

    mod = apply(WriteQuantizations(), build, [normal(5, 9) * np.float32(4)])
    assert not {"quantize", "dequantize"} & set(names(mod))


OTHERS: dict[str, Build] = {
    "scales of channels": lambda b, x: op.dequantize(
        x, relax.const(np.ones(9, "float32")), relax.const(np.zeros(9, "int8")), 1, "float32"
    ),
    "half precision": lambda b, x: op.dequantize(x, number(0.5), number(0, "int8"), -1, "float16"),
}  # fmt: skip


@pytest.mark.parametrize("name", OTHERS)
def test_others_stay(name: str) -> None:
    unchanged(WriteQuantizations(), OTHERS[name], [drawn("int8", 5, 9)])
