"""A product of two activations."""

from __future__ import annotations

from tvm import relax
from tvm.relax import op

from tests.backends.cpu.kernels.examples import Example, NearMiss, computed


def batch_matmul(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1])))


def halves(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    both = b.emit(op.astype(x, "float16"))
    return op.matmul(both, both)


def by_a_vector(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.matmul(x, b.emit(computed(3)))


def into_no_columns(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.matmul(x, b.emit(computed(3, 0)))


def short_rows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    both = b.emit(op.astype(x, "bfloat16"))
    return op.matmul(both, both, out_dtype="float32")


EXAMPLES = (Example(batch_matmul, (3, 21, 18)), Example(batch_matmul, (2, 70, 19)))

NEAR_MISSES = (
    NearMiss(halves, (3, 3), "it computes in float16"),
    NearMiss(by_a_vector, (1, 8, 8, 3), "an operand of it is a vector"),
    NearMiss(into_no_columns, (1, 8, 8, 3), "it has no elements"),
    NearMiss(short_rows, (3, 3), "rows of 3 numbers in bfloat16 do not fill vectors"),
)
