"""Random graphs of what the rules look at: rewritten, they compute the same in float64."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from math import erf, sqrt

import numpy as np
import pytest
import tvm
from tvm import relax
from tvm.relax import op

from fusion.bindings import Bindings, call_name
from fusion.constants import constant
from fusion.rewrites import Rewrite
from tests.passes.modules import canonical

GRAPHS = 300
_A, _B, _C = (2, 4, 6), (2, 6, 4), (8, 6)
_NUMBERS = (0.0, 1.0, 0.5, 2.0, sqrt(0.5), sqrt(2.0), 0.044715, sqrt(2 / np.pi), -1.5)


def weight(array: object) -> relax.Expr:
    return constant(np.asarray(array, "float64"))


class Graph:
    """A `main` that grows by random steps."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.builder = relax.BlockBuilder()
        inputs = [relax.Var(f"x{i}", relax.TensorType(_A, "float64")) for i in range(2)]
        self.values: list[relax.Var] = list(inputs)
        with self.builder.function("main", inputs):
            with self.builder.dataflow():
                for _ in range(int(self.random.integers(4, 24))):
                    self.step()
                last = self.values[-int(self.random.integers(1, 4)) :]
                result = self.builder.emit_output(relax.Tuple(last))
            self.builder.emit_func_output(result)
        self.mod = self.builder.get()

    def pick(self) -> relax.Var:
        """Return a value, mostly a recent one."""
        back = min(int(self.random.geometric(0.5)), len(self.values))
        return self.values[-back]

    def emit(self, expr: relax.Expr) -> relax.Var:
        made = self.builder.emit(expr)
        self.values.append(made)
        return made

    def known(self, shape: tuple[int, ...]) -> relax.Expr:
        """Return a constant that broadcasts to `shape`."""
        kind = self.random.integers(5)
        if kind < 2:
            return weight(self.random.choice(_NUMBERS))
        ones = {2: shape[-1:], 3: (shape[-2], 1), 4: shape}[int(kind)]
        return weight(self.random.normal(1.0, 1.0, ones))

    def step(self) -> None:
        self.random.choice([self.arithmetic] * 6 + [self.view, self.product, self.function, self.composite])()

    def arithmetic(self) -> None:
        x = self.pick()
        shape = tuple(map(int, x.ty.shape))
        name = str(self.random.choice(["add", "subtract", "multiply", "divide"]))
        same = [value for value in self.values if tuple(map(int, value.ty.shape)) == shape]
        other = self.known(shape) if self.random.random() < 0.8 else same[int(self.random.integers(len(same)))]
        if name == "divide":
            other = weight(self.random.choice([2.0, sqrt(2.0), 6.0, -3.0]))
        swapped = name != "divide" and self.random.random() < 0.3
        self.emit(getattr(op, name)(*((other, x) if swapped else (x, other))))

    def view(self) -> None:
        x = self.pick()
        shape = tuple(map(int, x.ty.shape))
        if len(shape) == 2:
            self.emit(op.reshape(x, _A if shape == _C else (1, *shape)))
        elif shape == _A and self.random.random() < 0.5:
            self.emit(op.reshape(x, _C))
        else:
            self.emit(op.permute_dims(x, [0, 2, 1]))

    def product(self) -> None:
        x = self.pick()
        width = int(x.ty.shape[-1])
        made = op.matmul(x, weight(self.random.normal(0.0, 0.4, (width, width))))
        second = [value for value in self.values if len(value.ty.shape) == 3]
        if self.random.random() < 0.3 and len(x.ty.shape) == 3:
            y = second[int(self.random.integers(len(second)))]
            turned = self.emit(op.permute_dims(x, [0, 2, 1]))
            if int(turned.ty.shape[-1]) == int(y.ty.shape[-2]):
                square = self.emit(op.matmul(turned, y))
                made = op.sum(square, [1, 2], keepdims=True)
                made = op.add(x, self.emit(made))
        self.emit(made)

    def function(self) -> None:
        self.emit(getattr(op, str(self.random.choice(["tanh", "sigmoid"])))(self.pick()))

    def composite(self) -> None:
        self.random.choice([self.gelu, self.silu, self.layer_norm, self.rms_norm, self.softmax])()

    def gelu(self) -> None:
        x = self.pick()
        step = self.emit(op.add(self.emit(op.erf(self.emit(op.divide(x, weight(sqrt(2.0)))))), weight(1.0)))
        self.emit(op.multiply(self.emit(op.multiply(x, step)), weight(0.5)))

    def silu(self) -> None:
        x = self.pick()
        self.emit(op.multiply(self.emit(op.sigmoid(x)), x))

    def layer_norm(self) -> None:
        x = self.pick()
        centred = self.emit(op.subtract(x, self.emit(op.mean(x, -1, keepdims=True))))
        square = self.emit(op.mean(self.emit(op.power(centred, weight(2.0))), -1, keepdims=True))
        self.emit(op.divide(centred, self.emit(op.sqrt(self.emit(op.add(square, weight(1e-3)))))))

    def rms_norm(self) -> None:
        x = self.pick()
        square = self.emit(op.mean(self.emit(op.multiply(x, x)), -1, keepdims=True))
        self.emit(op.multiply(x, self.emit(op.rsqrt(self.emit(op.add(square, weight(1e-3)))))))

    def softmax(self) -> None:
        x = self.pick()
        part = self.emit(op.exp(self.emit(op.subtract(x, self.emit(op.max(x, -1, keepdims=True))))))
        self.emit(op.divide(part, self.emit(op.sum(part, -1, keepdims=True))))


def evaluate(mod: tvm.IRModule, arrays: list[np.ndarray]) -> list[np.ndarray]:
    """Return the outputs of `main`, by NumPy in float64."""
    known: dict[relax.Var, np.ndarray] = dict(zip(mod["main"].params, arrays, strict=True))
    results: list[np.ndarray] = []
    for var, value in Bindings.of(mod["main"]).values.items():
        if isinstance(value, relax.Tuple):
            results = [known[item] for item in value.fields]
        elif isinstance(value, relax.Var):
            known[var] = known[value]
        else:
            operands = [known[arg] if isinstance(arg, relax.Var) else _array(arg) for arg in value.args]
            known[var] = np.asarray(_OPERATORS[call_name(value)](value, *operands))
    return results


def _array(arg: relax.Expr) -> object:
    return arg.value.numpy() if isinstance(arg, tvm.ir.GenericConst) else [int(extent) for extent in arg.values]


def _reduce(function: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
    return lambda call, x: function(x, axis=tuple(map(int, call.attrs.axis)), keepdims=True)


def _norm(call: relax.Call, x: np.ndarray, scale: np.ndarray, shift: np.ndarray | float = 0.0) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True) if call_name(call) == "nn.layer_norm" else x
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + call.attrs.epsilon) * scale + shift


def _softmax(call: relax.Call, x: np.ndarray) -> np.ndarray:
    part = np.exp(x - x.max(int(call.attrs.axis), keepdims=True))
    return part / part.sum(int(call.attrs.axis), keepdims=True)


_ERF = np.vectorize(erf, otypes=["float64"])
_OPERATORS: dict[str, Callable[..., np.ndarray]] = {
    **{
        name: lambda call, *operands, name=name: getattr(np, name)(*operands)
        for name in ("add", "subtract", "multiply", "divide", "power", "sqrt", "exp", "tanh", "matmul")
    },
    "erf": lambda call, x: _ERF(x),
    "rsqrt": lambda call, x: 1 / np.sqrt(x),
    "sigmoid": lambda call, x: 1 / (1 + np.exp(-x)),
    "mean": _reduce(np.mean),
    "sum": _reduce(np.sum),
    "max": _reduce(np.max),
    "reshape": lambda call, x, shape: x.reshape(shape),
    "permute_dims": lambda call, x: x.transpose([int(axis) for axis in call.attrs.axes]),
    "nn.gelu": lambda call, x: x * 0.5 * (1 + _ERF(x * sqrt(0.5))),
    "nn.silu": lambda call, x: x / (1 + np.exp(-x)),
    "nn.softmax": _softmax,
    "nn.layer_norm": _norm,
    "nn.rms_norm": _norm,
}


@pytest.mark.parametrize("first", range(0, GRAPHS, 50))
def test_random_graphs_compute_the_same(first: int) -> None:
    applied: Counter[str] = Counter()
    for seed in range(first, first + 50):
        before = canonical(Graph(seed).mod)
        result = Rewrite().run(before)
        after = result.mod
        relax.analysis.well_formed(after)
        applied += result.fact.applied
        arrays = [np.random.default_rng(seed).normal(size=_A) for _ in range(2)]
        with np.errstate(all="ignore"):
            pairs = list(zip(evaluate(after, arrays), evaluate(before, arrays), strict=True))
        for got, want in pairs:
            size = float(np.abs(want[np.isfinite(want)]).max(initial=0.0))
            np.testing.assert_allclose(got, want, rtol=0, atol=1e-6 * max(size, 1e-6), err_msg=f"seed {seed}")
    assert len(applied) > 8, applied
