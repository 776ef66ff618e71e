"""Graphs of any number of operators, in the shapes that a partition must not be slow for."""

from __future__ import annotations

import random
from collections.abc import Callable
from math import sqrt

import numpy as np
import tvm
from tvm import relax
from tvm.relax import op

from backends.backend import KernelCompiler
from backends.tensorir.lower_anchors import LowerAnchors

Grow = Callable[[relax.BlockBuilder, relax.Var, int], list[relax.Var]]
"""Emits about as many operators behind a value of [ROWS, WIDTH]; returns what is left unread."""

ROWS, WIDTH = 64, 128
_HEADS = 4


def graph(shape: str, operators: int, compiler: KernelCompiler) -> tvm.IRModule:
    """Return a module of TensorIR calls, as the partition gets it."""
    x = relax.Var("x", relax.TensorType((ROWS, WIDTH), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple(SHAPES[shape](builder, x, operators)))
        builder.emit_func_output(result)
    mod = relax.transform.DeadCodeElimination()(builder.get())
    return relax.transform.LegalizeOps(dict(compiler.legalizations))(LowerAnchors(compiler.lowerings)(mod))


def _weight(height: int = WIDTH, width: int = WIDTH) -> relax.Constant:
    return relax.const(np.full((height, width), 0.01, np.float32))


def elementwise(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """A chain of which every operator may join the one before."""
    for number in range(operators):
        x = b.emit(op.tanh(x) if number % 2 else op.nn.relu(x))
    return [x]


def chain(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """A chain with a matmul and a softmax every ten operators."""
    weight = _weight()
    for number in range(operators):
        kind = number % 10
        x = b.emit(op.matmul(x, weight) if kind == 0 else op.nn.softmax(x) if kind == 5 else op.tanh(x))
    return [x]


def diamonds(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """Two ways from each value to the next; one leads through a matmul in every fourth diamond."""
    weight = _weight()
    for number in range(operators // 3):
        left = b.emit(op.exp(x) if number % 4 else op.matmul(x, weight))
        x = b.emit(op.add(left, b.emit(op.sin(x))))
    return [x]


def random_dag(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """Operators that mostly read the value before, and one of the thirty before that."""
    rng, weight, values = random.Random(operators), _weight(), [x]
    for _ in range(operators):
        recent = values[-30:]
        first = values[-1] if rng.random() < 0.8 else rng.choice(recent)
        made = rng.choices(
            [op.matmul(first, weight), op.nn.softmax(first), op.nn.relu(first), op.add(first, rng.choice(recent))],
            [1, 1, 4, 4],
        )[0]
        values.append(b.emit(made))
    return values[-30:]


def skips(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """A deep graph whose first value, as the mask of a decoder, is read at every depth."""
    weight, mask = _weight(), b.emit(op.exp(x))
    for _ in range(operators // 3):
        x = b.emit(op.add(b.emit(op.nn.relu(b.emit(op.matmul(x, weight)))), mask))
    return [x]


def fan(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """One value read by as many branches as each has operators."""
    depth, weight = max(2, int(sqrt(operators))), _weight()
    root, ends = b.emit(op.exp(x)), []
    for _ in range(operators // depth):
        value = b.emit(op.tanh(root))
        for number in range(depth - 1):
            value = b.emit(op.matmul(value, weight) if number % 5 == 0 else op.nn.relu(value))
        ends.append(value)
    return ends


def products(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """One value that many matmuls multiply, as the heads of an attention or the experts of a mixture do."""
    weight, root = _weight(), b.emit(op.exp(x))
    return [
        b.emit(op.nn.relu(b.emit(op.tanh(b.emit(op.add(b.emit(op.matmul(root, weight)), root))))))
        for _ in range(operators // 4)
    ]


def towers(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """Two chains that grow side by side and read one early value, but not each other."""
    weight, root = _weight(), b.emit(op.exp(x))
    left, right = b.emit(op.tanh(x)), b.emit(op.sin(x))
    for _ in range(operators // 6):
        left = b.emit(op.nn.relu(b.emit(op.add(b.emit(op.matmul(left, weight)), root))))
        right = b.emit(op.nn.relu(b.emit(op.add(b.emit(op.matmul(right, weight)), root))))
    return [left, right]


def transformer(b: relax.BlockBuilder, x: relax.Var, operators: int) -> list[relax.Var]:
    """Blocks of attention under one mask, and of two matmuls with a GELU between."""
    mask = b.emit(op.multiply(b.emit(op.matmul(x, b.emit(op.permute_dims(x)))), relax.const(0.1, "float32")))
    for _ in range(max(1, operators // _BLOCK)):
        x = _block(b, x, mask)
    return [x]


_BLOCK = 34
"""Operators of a block."""


def _block(b: relax.BlockBuilder, x: relax.Var, mask: relax.Var) -> relax.Var:
    heads = [b.emit(op.reshape(_linear(b, _norm(b, x)), (ROWS, _HEADS, WIDTH // _HEADS))) for _ in range(3)]
    query, key, value = (b.emit(op.permute_dims(head, [1, 0, 2])) for head in heads)
    scores = b.emit(op.matmul(query, b.emit(op.permute_dims(key, [0, 2, 1]))))
    scores = b.emit(op.add(b.emit(op.multiply(scores, relax.const(0.2, "float32"))), mask))
    mixed = b.emit(op.permute_dims(b.emit(op.matmul(b.emit(op.nn.softmax(scores)), value)), [1, 0, 2]))
    x = b.emit(op.add(x, _linear(b, b.emit(op.reshape(mixed, (ROWS, WIDTH))))))
    hidden = b.emit(op.nn.gelu(_linear(b, _norm(b, x), 4 * WIDTH)))
    return b.emit(op.add(x, _linear(b, hidden)))


def _norm(b: relax.BlockBuilder, x: relax.Var) -> relax.Var:
    ones = relax.const(np.ones(WIDTH, np.float32))
    return b.emit(op.nn.layer_norm(x, ones, ones, axes=[-1]))


def _linear(b: relax.BlockBuilder, x: relax.Var, width: int = WIDTH) -> relax.Var:
    bias = relax.const(np.full(width, 0.01, np.float32))
    return b.emit(op.add(b.emit(op.matmul(x, _weight(int(x.ty.shape[-1]), width))), bias))


SHAPES: dict[str, Grow] = {
    "elementwise chain": elementwise,
    "chain": chain,
    "diamonds": diamonds,
    "random": random_dag,
    "skips": skips,
    "fan": fan,
    "products": products,
    "towers": towers,
    "transformer": transformer,
}
