"""Stages of which only a call knows some extents, against numpy in float64, at sizes 0 and 1 and with every kind of
edge."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import erf

import numpy as np
import pytest
import tvm
from tvm import relax, tirx
from tvm.relax import op

from backends.cpu.kernels.stitch_stages import TEMPLATE
from backends.cpu.kernels.stitch_stages.emit import emit_open_stages
from backends.cpu.schedule import schedule
from backends.tensorir.symbols import symbols_of
from fusion import context
from fusion.structural import find
from fusion.symbolic.fit import Fit
from fusion.tensors import as_tensor
from tests.backends.cpu.kernels.memory_bound import Build, prim_func
from tests.symbolic.unified import unified
from tests.targets import AVX2, host_target, machine_code

Shape = tuple[int, ...]

PROBES = ({"b": 11, "n": 127}, {"b": 11, "n": 131}, {"b": 13, "n": 131})
MARGIN = 64
SIZES = [(1, 1), (1, 5), (3, 127), (2, 16), (7, 33), (0, 3), (2, 0), (1, 300)]


@dataclass(frozen=True)
class Case:
    """A computation over inputs whose shapes depend on two sizes, and its result in NumPy."""

    build: Build
    shapes: Callable[[int, int], list[Shape]]
    expected: Callable[..., np.ndarray]

    def arrays(self, b: int, n: int) -> list[np.ndarray]:
        rng = np.random.default_rng([b, n])
        return [rng.normal(0, 1, shape).astype("float32") for shape in self.shapes(b, n)]

    def func(self) -> tirx.PrimFunc:
        """Return the kernel with symbols."""
        return unified([prim_func(self.build, self.arrays(**sizes)) for sizes in PROBES], Fit(PROBES))


def _layer_norm(x: np.ndarray, scale: np.ndarray, shift: np.ndarray) -> np.ndarray:
    return (x - x.mean(-1, keepdims=True)) / np.sqrt(x.var(-1, keepdims=True) + 1e-5) * scale + shift


def _softmax(x: np.ndarray) -> np.ndarray:
    grown = np.exp(x - x.max(-1, keepdims=True, initial=-np.inf))
    return grown / grown.sum(-1, keepdims=True)


def _gelu(x: np.ndarray) -> np.ndarray:
    return x / 2 * (1 + np.vectorize(erf, otypes=["float64"])(x / np.sqrt(2)))


CASES = {
    "rows of a static length": Case(
        lambda _, x, scale, shift: op.nn.layer_norm(x, scale, shift, [2]),
        lambda b, n: [(b, n, 130), (130,), (130,)],
        _layer_norm,
    ),
    "rows of an open length, one vector axis and a rest": Case(
        lambda _, x, y: op.nn.gelu(op.add(x, y)),
        lambda b, n: [(b, 3, n), (3, 1)],
        lambda x, y: _gelu(x + y),
    ),
    "an open row between what pads it": Case(
        lambda _, x: op.nn.pad(x, [0, 0, 1, 20]), lambda b, n: [(b, n)], lambda x: np.pad(x, ((0, 0), (1, 20)))
    ),
    "open rows of which the value takes more than what lies there": Case(
        lambda _, x: op.tril(x), lambda b, n: [(b, n, n)], np.tril
    ),
    "lanes that TVM takes one by one": Case(
        lambda _, x: op.rsqrt(op.abs(x)), lambda b, n: [(b, 3, n)], lambda x: 1 / np.sqrt(np.abs(x))
    ),
    "rows and columns that are walked as one": Case(
        lambda _, x: op.nn.relu(x), lambda b, n: [(b, n, n)], lambda x: np.maximum(x, 0)
    ),
    "rows that are walked as one": Case(
        lambda _, x: op.nn.relu(op.add(x, x)), lambda b, n: [(b, n, 6)], lambda x: np.maximum(x + x, 0)
    ),
    "reductions along open rows, and exponentials that wait": Case(
        lambda _, x, mask: op.nn.softmax(op.multiply(op.add(x, mask), op.add(x, mask))),
        lambda b, n: [(b, 2, n, n), (b, 1, 1, n)],
        lambda x, mask: _softmax((x + mask) ** 2),
    ),
    "a reduction across an open axis": Case(lambda _, x: op.sum(x, [1]), lambda b, n: [(b, n, 20)], lambda x: x.sum(1)),
    "a reduction behind the vectors of an open axis": Case(
        lambda _, x: op.sum(x, [1]), lambda b, n: [(b, 9, n)], lambda x: x.sum(1)
    ),
    "squares that an open axis cuts along the result": Case(
        lambda _, x: op.permute_dims(x, [0, 2, 3, 1]),
        lambda b, n: [(b, n, 2, 24)],
        lambda x: x.transpose(0, 2, 3, 1),
    ),
    "squares that an open axis cuts along what is read": Case(
        lambda _, x, y: op.add(op.permute_dims(x, [0, 3, 1, 2]), y),
        lambda b, n: [(b, 2, 24, n), (b, n, 2, 24)],
        lambda x, y: x.transpose(0, 3, 1, 2) + y,
    ),
    "squares whose rest is scalar, as it is gathered": Case(
        lambda _, x, y: op.add(op.permute_dims(x, [0, 2, 1]), op.strided_slice(y, [2], [0], [10**6], [2])),
        lambda b, n: [(b, n, 32), (b, 32, 2 * n)],
        lambda x, y: x.transpose(0, 2, 1) + y[:, :, ::2],
    ),
    "heads": Case(
        lambda _, x: op.permute_dims(x, [0, 2, 1, 3]), lambda b, n: [(b, n, 3, 20)], lambda x: x.transpose(0, 2, 1, 3)
    ),
    "parts side by side": Case(
        lambda _, x, y: op.concat([x, y], 2),
        lambda b, n: [(b, n, 20), (b, n, 7)],
        lambda x, y: np.concatenate([x, y], 2),
    ),
    "open parts one after the other": Case(
        lambda _, x, y: op.concat([x, y], 1),
        lambda b, n: [(b, n), (b, n)],
        lambda x, y: np.concatenate([x, y], 1),
    ),
    "every second element of an open row": Case(
        lambda _, x: op.strided_slice(x, [1], [0], [10**6], [2]), lambda b, n: [(b, 2 * n)], lambda x: x[:, ::2]
    ),
    "a mean over static axes": Case(
        lambda _, x: op.mean(x, [1, 2], keepdims=True),
        lambda b, _: [(b, 7, 7, 40)],
        lambda x: x.mean((1, 2), keepdims=True),
    ),
}


def check(case: Case, threads: int, target: str = "llvm") -> None:
    """Compare at all sizes."""
    func = case.func()
    machine = context.resolve(target).compiler.machine
    kernel = schedule(func, machine, threads)
    assert (kernel.template, kernel.note) == (TEMPLATE.name, "")
    module = tvm.IRModule({"k": kernel.func.with_attr("global_symbol", "k")})
    library = machine_code(module, host_target(target))
    for b, n in SIZES if len(symbols_of(func)) > 1 else [(b, 1) for b in (0, 1, 2, 9)]:
        arrays = case.arrays(b, n)
        want = case.expected(*(array.astype("float64") for array in arrays))
        memory = np.full(want.size + 2 * MARGIN, 77, "float32")  # of which the result is the middle
        result = memory[MARGIN : MARGIN + want.size].reshape(want.shape)
        library["k"](*map(as_tensor, (*arrays, result)))
        np.testing.assert_allclose(result, want, rtol=2e-5, atol=2e-5, err_msg=f"{b=} {n=}")
        assert (memory[:MARGIN] == 77).all(), f"{b=} {n=}: stored in front of the result"
        assert (memory[MARGIN + want.size :] == 77).all(), f"{b=} {n=}: stored behind the result"


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("threads", "target"), [(1, "llvm"), (3, AVX2)])
def test_kernels_are_right_at_all_sizes(name: str, threads: int, target: str) -> None:
    check(CASES[name], threads, target)


def test_only_much_work_is_shared_out() -> None:
    case = CASES["rows of a static length"]
    serial, parallel = (emit_open_stages(case.func(), context.resolve("llvm").compiler.machine, t) for t in (1, 2))
    assert "T.parallel" not in serial.func.script()
    (choice,) = find(parallel.func.body, tirx.IfThenElse)
    assert "T.parallel" in choice.then_case.script()
    assert "T.parallel" not in choice.else_case.script()


def test_what_one_symbol_tiles_is_not_joined_to_what_two_tile() -> None:
    """With the first words, whose tiles are the sentences, a layer_norm of one sentence would run on one thread."""

    def build(builder: relax.BlockBuilder, x: relax.Expr, scale: relax.Expr, shift: relax.Expr) -> relax.Expr:
        rows = builder.emit(op.nn.layer_norm(x, scale, shift, [2]))
        first = builder.emit(op.strided_slice(rows, [1], [0], [1]))
        return relax.Tuple([rows, first])

    case = Case(build, lambda b, n: [(b, n, 128), (128,), (128,)], _layer_norm)
    kernel = emit_open_stages(case.func(), context.resolve("llvm").compiler.machine, 2)
    assert [words.split(",")[0] for words in kernel.tile.split("; ")] == ["5 stages", "1 stages"]
