"""A template's reason raised in a callback of TVM came back as a RuntimeError, which ended the compilation."""

from __future__ import annotations

from typing import NoReturn

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.ir import Var
from tvm_ffi.structural import structural_map

from fusion import context
from fusion.declined import Declined
from tests.backends.cpu.kernels.anchored import normal, one_kernel
from tests.passes.modules import Build

op = relax.op


def test_it_keeps_its_type_and_its_words() -> None:
    def refuse(var: tirx.Var) -> NoReturn:
        raise Declined(f"{var.name} has other rows")

    with pytest.raises(Declined, match=r"^scores has other rows$"):
        structural_map(Var("scores", "int64") + 1, (Var, refuse))


def _sum_behind_a_product(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    total = b.emit(op.sum(b.emit(op.matmul(x, relax.const(normal((8, 6), 1)))), -1))
    return op.exp(total)


def _rows_of_an_attention_in_reverse(b: relax.BlockBuilder, q: relax.Var, k: relax.Var, v: relax.Var) -> relax.Expr:
    rows = b.emit(op.nn.softmax(b.emit(op.matmul(q, k))))
    return op.matmul(b.emit(op.flip(rows, 1)), v)


def _rows_of_a_product_in_reverse(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.matmul(b.emit(op.flip(b.emit(op.exp(x)), 0)), relax.const(normal((8, 6), 1)))


@pytest.mark.parametrize(
    ("build", "shapes", "reason"),
    [
        (_sum_behind_a_product, [(4, 8)], "is reduced"),
        (_rows_of_an_attention_in_reverse, [(2, 5, 8), (2, 8, 7), (2, 7, 6)], "reads another row"),
        (_rows_of_a_product_in_reverse, [(4, 8)], "reads another row"),
    ],
)
def test_it_is_what_the_judge_answers(build: Build, shapes: list[tuple[int, ...]], reason: str) -> None:
    arrays: list[np.ndarray] = [normal(shape, seed) for seed, shape in enumerate(shapes)]
    compiler = context.resolve("llvm", threads=2).compiler
    assert compiler.why_not_fused(one_kernel(build, arrays)).endswith(reason)
