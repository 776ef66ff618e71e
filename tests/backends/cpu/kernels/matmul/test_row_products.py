"""Matmuls of the same rows as one kernel, which may make the rows too."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.kernels.matmul.read import RowProducts
from backends.cpu.kernels.priority import recognise
from backends.cpu.profitability import why_not_fused
from fusion import context
from fusion.declined import Declined
from tests.backends.cpu.kernels.anchored import TARGETS, normal, one_kernel, run
from tests.passes.modules import Build

Reference = Callable[[np.ndarray], list[np.ndarray]]
DEPTH, WIDE, NARROW = 40, 70, 24
WIDE_MATRIX, NARROW_MATRIX, SQUARE = normal((DEPTH, WIDE), 1), normal((DEPTH, NARROW), 2), normal((DEPTH, DEPTH), 3)
GAMMA, BETA = normal((DEPTH,), 4), normal((DEPTH,), 5)


def whatever_is_read(kernel: tirx.PrimFunc) -> str:
    """Take every chain that has a template."""
    try:
        recognise(kernel)
    except Declined as reason:
        return str(reason)
    return ""


def constant(values: np.ndarray) -> relax.Constant:
    return relax.const(values)


def product(b: relax.BlockBuilder, rows: relax.Expr, matrix: np.ndarray) -> relax.Expr:
    return b.emit(op.matmul(rows, constant(matrix)))


def layer_norm(b: relax.BlockBuilder, x: relax.Expr) -> relax.Expr:
    return b.emit(op.nn.layer_norm(x, constant(GAMMA), constant(BETA), [-1]))


def normalised(x: np.ndarray) -> np.ndarray:
    x = x.astype("float64")
    deviation = np.sqrt(x.var(-1, keepdims=True) + 1e-5)
    return (x - x.mean(-1, keepdims=True)) / deviation * GAMMA + BETA


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _several(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = b.emit(op.tanh(x))
    return relax.Tuple([b.emit(op.nn.relu(product(b, rows, m))) for m in (WIDE_MATRIX, NARROW_MATRIX, SQUARE)])


def _norm(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.add(product(b, layer_norm(b, x), WIDE_MATRIX), constant(normal((WIDE,), 6)))


def _norm_of_several(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = layer_norm(b, x)
    return relax.Tuple([product(b, rows, WIDE_MATRIX), product(b, rows, NARROW_MATRIX)])


def _kept(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = layer_norm(b, x)
    return relax.Tuple([rows, product(b, rows, WIDE_MATRIX)])


def _gate(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = b.emit(op.tanh(x))
    gate, value = product(b, rows, WIDE_MATRIX), product(b, rows, normal((DEPTH, WIDE), 7))
    return op.multiply(b.emit(op.multiply(gate, b.emit(op.sigmoid(gate)))), value)


def _turned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rank = len(x.ty.shape)
    return product(b, b.emit(op.permute_dims(x, [*range(rank - 2), rank - 1, rank - 2])), WIDE_MATRIX)


def _scaled(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return product(b, b.emit(op.multiply(x, constant(GAMMA))), WIDE_MATRIX)


def _mean(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return product(b, b.emit(op.mean(x, [1, 2])), WIDE_MATRIX)


def _residual(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return op.add(b.emit(op.nn.relu(product(b, x, SQUARE))), x)


def _layers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """An MLP: normalised rows, two layers, and the sum with what came in."""
    hidden = b.emit(op.sigmoid(b.emit(op.add(product(b, layer_norm(b, x), WIDE_MATRIX), constant(normal((WIDE,), 6))))))
    return op.add(product(b, hidden, normal((WIDE, DEPTH), 9)), x)


def layers(x: np.ndarray) -> list[np.ndarray]:
    hidden = sigmoid(normalised(x) @ WIDE_MATRIX + normal((WIDE,), 6))
    return [hidden @ normal((WIDE, DEPTH), 9).astype("float64") + x]


def _gated_layers(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return product(b, b.emit(_gate(b, x)), normal((WIDE, NARROW), 9))


def gate(x: np.ndarray) -> np.ndarray:
    gate, value = np.tanh(x) @ WIDE_MATRIX, np.tanh(x) @ normal((DEPTH, WIDE), 7)
    return gate * sigmoid(gate) * value


CASES: dict[str, tuple[Build, Reference, tuple[int, ...]]] = {
    "three products": (
        _several, lambda x: [np.maximum(np.tanh(x) @ m, 0) for m in (WIDE_MATRIX, NARROW_MATRIX, SQUARE)], (37, DEPTH),
    ),
    "normalised rows": (_norm, lambda x: [normalised(x) @ WIDE_MATRIX + normal((WIDE,), 6)], (2, 37, DEPTH)),
    "normalised rows, one": (_norm, lambda x: [normalised(x) @ WIDE_MATRIX + normal((WIDE,), 6)], (1, DEPTH)),
    "normalised rows of two products": (
        _norm_of_several, lambda x: [normalised(x) @ WIDE_MATRIX, normalised(x) @ NARROW_MATRIX], (5, 7, 3, DEPTH),
    ),
    "normalised rows are a result": (_kept, lambda x: [normalised(x), normalised(x) @ WIDE_MATRIX], (3, 29, DEPTH)),
    "gate": (_gate, lambda x: [gate(x)], (53, DEPTH)),
    "layers": (_layers, layers, (2, 61, DEPTH)),
    "layers over pixels": (_layers, layers, (1, 9, 13, DEPTH)),
    "gated layers": (_gated_layers, lambda x: [gate(x) @ normal((WIDE, NARROW), 9)], (1, 131, DEPTH)),
    "turned": (_turned, lambda x: [x.swapaxes(-1, -2) @ WIDE_MATRIX], (DEPTH, 61)),
    "turned batches": (_turned, lambda x: [x.swapaxes(-1, -2) @ WIDE_MATRIX], (3, DEPTH, 19)),
    "scaled pixels": (_scaled, lambda x: [(x * GAMMA) @ WIDE_MATRIX], (1, 7, 9, DEPTH)),
    "a residual of its own rows": (_residual, lambda x: [np.maximum(x @ SQUARE, 0) + x], (1, 7, 9, DEPTH)),
    "mean of an image": (_mean, lambda x: [x.mean((1, 2)) @ WIDE_MATRIX], (2, 6, 5, DEPTH)),
}  # fmt: skip


@pytest.mark.parametrize(
    ("case", "threads", "target"),
    [
        (case, threads, TARGETS[(i + j) % len(TARGETS)])  # all pairs of two
        for i, case in enumerate(CASES) for j, threads in enumerate((1, 2, 5))
    ],
)  # fmt: skip
def test_one_kernel_of_all(case: str, threads: int, target: str) -> None:
    build, reference, shape = CASES[case]
    data = normal(shape, 0)
    ran = run(build, [data], target, threads, judge=whatever_is_read)
    assert ran.templates() == ["matmul"]
    for got, want in zip(ran.outputs, reference(data.astype("float64")), strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1.0, np.abs(want).max()))


def _rows_of_another(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return product(b, b.emit(op.permute_dims(b.emit(op.exp(x)))), WIDE_MATRIX)


def _rows_used_elsewhere(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    rows = layer_norm(b, x)
    return relax.Tuple([b.emit(op.add(product(b, rows, SQUARE), rows)), b.emit(op.exp(rows))])


def _crossed_gates(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """Products of other widths cannot read each other."""
    wide, narrow = product(b, x, WIDE_MATRIX), product(b, x, normal((DEPTH, 1), 8))
    return op.multiply(wide, b.emit(op.sigmoid(narrow)))


@pytest.mark.parametrize("build", [_rows_of_another, _rows_used_elsewhere, _crossed_gates])
def test_what_no_kernel_takes_is_still_right(build: Build) -> None:
    data = normal((DEPTH, DEPTH), 0)
    (together, apart) = (run(build, [data], "llvm", 2, judge=j) for j in (whatever_is_read, lambda _: "never"))
    for got, want in zip(together.outputs, apart.outputs, strict=True):
        np.testing.assert_allclose(got, want, rtol=0, atol=1e-5 * max(1.0, np.abs(want).max()))
    assert "fallback_loops" not in together.templates()


def test_one_kernel_is_declined_where_it_would_be_slower() -> None:
    """A mean over a large image is made again by every task that has a share of the channels."""
    machine = context.resolve("llvm").compiler.machine
    asked: dict[str, str] = {}

    def ask(kernel: tirx.PrimFunc) -> str:
        _, parts = recognise(kernel)
        assert isinstance(parts, RowProducts)
        asked["reason"] = why_not_fused(kernel, machine, 16)
        return asked["reason"]

    data = normal((1, 112, 112, DEPTH), 0)
    ran = run(_mean, [data], "llvm", 16, judge=ask)
    assert "cycles estimated in one kernel" in asked["reason"]
    assert len(ran.kernels) == 2


def _exponentials_kept(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    before = b.emit(op.exp(x))
    return relax.Tuple([before, product(b, b.emit(op.tanh(before)), WIDE_MATRIX)])


def _first_layer_kept(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    before = product(b, x, SQUARE)
    return relax.Tuple([before, product(b, b.emit(op.tanh(before)), WIDE_MATRIX)])


@pytest.mark.parametrize("build", [_exponentials_kept, _first_layer_kept])
def test_what_makes_the_rows_is_no_result(build: Build) -> None:
    """A task keeps it to itself: nothing would store it."""
    with pytest.raises(Declined, match="what makes the rows is needed outside"):
        recognise(one_kernel(build, [normal((DEPTH, DEPTH), 0)]))
