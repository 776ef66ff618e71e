"""An attention without weights."""

from __future__ import annotations

from tvm import relax

from tests.backends.cpu.kernels.examples import Example


def attention(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    scores = b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1]))))
    return relax.op.matmul(b.emit(relax.op.nn.softmax(b.emit(relax.op.tanh(scores)), -1)), x)


def attention_to_columns(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return relax.op.matmul(b.emit(relax.op.nn.softmax(b.emit(relax.op.matmul(x, x)), -1)), x)


EXAMPLES = (Example(attention, (2, 150, 12)), Example(attention_to_columns, (2, 44, 44)))
