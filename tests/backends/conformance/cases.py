"""What every backend computes, or says why not: operators, and what torch makes of them in float64."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
import tvm
from torch.nn import functional
from tvm import relax
from tvm.relax import op

from fusion.bindings import call_name
from fusion.constants import constant

Build = Callable[..., relax.Expr]
Torch = Callable[..., torch.Tensor]


@dataclass(frozen=True)
class Case:
    """An operator, or several.

    Attributes:
        build: Makes it of variables, then constants.
        torch: Makes the same of tensors in float64.
        inputs: Shapes of the variables.
        weights: Shapes of the constants.
    """

    build: Build
    torch: Torch
    inputs: Sequence[tuple[int, ...]]
    weights: Sequence[tuple[int, ...]] = ()


def _conv(**attrs: object) -> tuple[Build, Torch]:
    padding = attrs.get("padding", (0, 0, 0, 0))
    rest = {name.removesuffix("s") if name == "strides" else name: value for name, value in attrs.items()}
    rest.pop("padding", None)
    top, left, bottom, right = padding
    return partial(op.nn.conv2d, **attrs), lambda x, w: functional.conv2d(
        functional.pad(x, (left, right, top, bottom)), w, **rest
    )


def _relu_of_sum(x: relax.Expr, w: relax.Expr, b: relax.Expr) -> relax.Expr:
    return op.nn.relu(op.add(op.matmul(x, w), b))


def _choice(comparison: str) -> Case:
    """Of numbers by a mask, of which nobody sees what NaN made it: x > y ? x : 2 y."""
    compared = getattr(torch, {"greater": "gt", "greater_equal": "ge", "less": "lt", "less_equal": "le",
                               "equal": "eq", "not_equal": "ne"}[comparison])  # fmt: skip
    return Case(
        lambda x, y: op.where(getattr(op, comparison)(x, y), x, op.add(y, y)),
        lambda x, y: torch.where(compared(x, y), x, y + y), [(9, 7), (9, 7)],
    )  # fmt: skip


COMPARISONS = ("greater", "greater_equal", "less", "less_equal", "equal", "not_equal")
_EDGES = {"padding": (1, 1, 1, 1)}
_FIRST: Mapping[str, Case] = {
    "matmul": Case(op.matmul, torch.matmul, [(5, 7)], [(7, 3)]),
    "matmul of one row and many columns": Case(op.matmul, torch.matmul, [(1, 1023)], [(1023, 257)]),
    "matmul of batches by a matrix": Case(op.matmul, torch.matmul, [(2, 3, 5, 7)], [(7, 4)]),
    "matmul of variables": Case(op.matmul, torch.matmul, [(2, 5, 7), (2, 7, 3)]),
    "matmul of broadcast batches": Case(op.matmul, torch.matmul, [(2, 1, 5, 7), (3, 7, 4)]),
    "matmul of a vector": Case(op.matmul, torch.matmul, [(7,), (7, 3)]),
    "matmul, bias, relu": Case(
        _relu_of_sum, lambda x, w, b: functional.relu(x @ w + b), [(33, 17)], [(17, 31), (31,)]
    ),
    "bias before the matmul in the add": Case(
        lambda x, w, b: op.add(b, op.matmul(x, w)), lambda x, w, b: b + x @ w, [(2, 3, 8)], [(8, 5), (5,)]
    ),
    "matmul, bias, residual": Case(
        lambda x, y, w, b: op.add(op.add(op.matmul(x, w), b), y),
        lambda x, y, w, b: x @ w + b + y, [(2, 3, 8), (2, 3, 5)], [(8, 5), (5,)],
    ),
    "matmul, residual, gelu": Case(
        lambda x, y, w: op.nn.gelu(op.add(y, op.matmul(x, w))),
        lambda x, y, w: functional.gelu(y + x @ w), [(6, 8), (6, 5)], [(8, 5)],
    ),
    "matmul and a number for each row": Case(
        lambda x, y, w: op.add(op.matmul(x, w), y), lambda x, y, w: x @ w + y, [(6, 8), (6, 1)], [(8, 5)]
    ),
    "matmul and more axes": Case(
        lambda x, y, w: op.add(op.matmul(x, w), y), lambda x, y, w: x @ w + y, [(6, 8), (2, 6, 5)], [(8, 5)],
    ),
    "matmul read twice": Case(
        lambda x, w: (lambda y: op.add(y, y))(op.matmul(x, w)), lambda x, w: x @ w * 2, [(6, 8)], [(8, 5)]
    ),
    "conv2d": Case(*_conv(**_EDGES), [(1, 3, 9, 9)], [(17, 3, 3, 3)]),
    "conv2d of points": Case(*_conv(), [(2, 32, 6, 5)], [(16, 32, 1, 1)]),
    "conv2d with strides": Case(*_conv(strides=(2, 2), **_EDGES), [(1, 16, 9, 12)], [(32, 16, 3, 3)]),
    "conv2d with dilation": Case(*_conv(dilation=(2, 2), padding=(2, 2, 2, 2)), [(1, 8, 9, 9)], [(8, 8, 3, 3)]),
    "conv2d with uneven padding": Case(*_conv(padding=(0, 2, 1, 0)), [(1, 5, 7, 7)], [(6, 5, 2, 4)]),
    "conv2d in groups": Case(*_conv(groups=2, **_EDGES), [(1, 8, 7, 7)], [(6, 4, 3, 3)]),
    "conv2d of each channel": Case(*_conv(groups=16, **_EDGES), [(1, 16, 7, 7)], [(16, 1, 3, 3)]),
    "conv2d, bias, residual, relu": Case(
        lambda x, y, w, b: op.nn.relu(op.add(op.add(op.nn.conv2d(x, w), b), y)),
        lambda x, y, w, b: functional.relu(functional.conv2d(x, w) + b + y),
        [(1, 16, 6, 6), (1, 24, 6, 6)], [(24, 16, 1, 1), (1, 24, 1, 1)],
    ),
    "avg_pool2d": Case(
        lambda x: op.nn.avg_pool2d(x, (2, 3), (2, 1), (1, 1, 1, 1)),
        lambda x: functional.avg_pool2d(x, (2, 3), (2, 1), (1, 1), count_include_pad=False), [(1, 5, 8, 7)],
    ),
    "avg_pool2d that counts padding": Case(
        lambda x: op.nn.avg_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=True),
        lambda x: functional.avg_pool2d(x, 3, 2, 1), [(2, 16, 8, 8)],
    ),
    "max_pool2d": Case(
        lambda x: op.nn.max_pool2d(x, (3, 3), (2, 2), (1, 1, 1, 1)),
        lambda x: functional.max_pool2d(x, 3, 2, 1), [(1, 5, 9, 9)],
    ),
    "softmax": Case(lambda x: op.nn.softmax(x, -1), lambda x: x.softmax(-1), [(3, 2, 127)]),
    "softmax of another axis": Case(lambda x: op.nn.softmax(x, 1), lambda x: x.softmax(1), [(3, 5, 4)]),
    "log_softmax": Case(lambda x: op.nn.log_softmax(x, -1), lambda x: x.log_softmax(-1), [(3, 19)]),
    "layer_norm": Case(
        lambda x, g, b: op.nn.layer_norm(x, g, b, [-1], 1e-5),
        lambda x, g, b: functional.layer_norm(x, g.shape, g, b, 1e-5), [(2, 3, 65)], [(65,), (65,)],
    ),
    "layer_norm of two axes": Case(
        lambda x, g, b: op.nn.layer_norm(x, g, b, [-2, -1], 1e-5),
        lambda x, g, b: functional.layer_norm(x, g.shape, g, b, 1e-5), [(2, 3, 5)], [(3, 5), (3, 5)],
    ),
    "abs": Case(op.abs, torch.abs, [(3, 7)]),
    "clip": Case(lambda x: op.clip(x, 0.0, 0.5), lambda x: x.clamp(0.0, 0.5), [(3, 7)]),
    "exp": Case(op.exp, torch.exp, [(3, 7)]),
    "gelu": Case(op.nn.gelu, functional.gelu, [(3, 7)]),
    "gelu_tanh": Case(op.nn.gelu_tanh, partial(functional.gelu, approximate="tanh"), [(3, 7)]),
    "leakyrelu": Case(lambda x: op.nn.leakyrelu(x, 0.2), lambda x: functional.leaky_relu(x, 0.2), [(3, 7)]),
    "relu": Case(op.nn.relu, functional.relu, [(3, 7)]),
    "sigmoid": Case(op.sigmoid, torch.sigmoid, [(3, 7)]),
    "silu": Case(op.nn.silu, functional.silu, [(3, 7)]),
    "sqrt": Case(op.sqrt, torch.sqrt, [(3, 7)]),  # of numbers below 0, too
    "tanh": Case(op.tanh, torch.tanh, [(3, 7)]),
    "add of a row": Case(op.add, torch.add, [(3, 7), (7,)]),
    "divide": Case(op.divide, torch.divide, [(3, 7), (3, 7)]),
    "maximum": Case(op.maximum, torch.maximum, [(3, 7), (3, 7)]),
    "sum": Case(lambda x: op.sum(x, [1]), lambda x: x.sum(1), [(3, 97, 2)]),
    "permute_dims": Case(lambda x: op.permute_dims(x, [2, 0, 1]), lambda x: x.permute(2, 0, 1), [(3, 4, 5)]),
}  # fmt: skip
_REDUCTIONS_AND_MASKS: Mapping[str, Case] = {
    "minimum": Case(op.minimum, torch.minimum, [(3, 7), (3, 7)]),
    "log": Case(op.log, torch.log, [(3, 7)]),
    "erf": Case(op.erf, torch.erf, [(3, 7)]),
    "sum of all axes": Case(op.sum, torch.sum, [(3, 19, 2)]),
    "mean": Case(lambda x: op.mean(x, [0, 2], keepdims=True), lambda x: x.mean((0, 2), keepdim=True), [(3, 19, 4)]),
    "prod": Case(lambda x: op.prod(x, [1]), lambda x: x.prod(1), [(5, 9)]),
    "largest of an axis": Case(lambda x: op.max(x, [1]), lambda x: x.amax(1), [(5, 19, 2)]),
    "largest of the last axis": Case(lambda x: op.max(x, [-1]), lambda x: x.amax(-1), [(9, 67)]),
    "least of an axis": Case(lambda x: op.min(x, [1]), lambda x: x.amin(1), [(5, 19, 2)]),
    "least of all axes": Case(op.min, torch.amin, [(3, 19)]),
    "variance": Case(lambda x: op.variance(x, [1]), lambda x: x.var(1, correction=0), [(5, 33)]),
    **{f"choice by {name}": _choice(name) for name in COMPARISONS},
    "choice by what is true": Case(
        lambda x, y: op.where(op.astype(x, "bool"), x, y), lambda x, y: torch.where(x.bool(), x, y), [(9, 7), (9, 7)]
    ),
    "choice by isnan": Case(
        lambda x, y: op.where(op.isnan(x), y, x), lambda x, y: torch.where(x.isnan(), y, x), [(9, 7), (9, 7)]
    ),
}  # fmt: skip
CASES: Mapping[str, Case] = {**_FIRST, **_REDUCTIONS_AND_MASKS}
"""By name."""
SUITES = (tuple(_FIRST), tuple(_REDUCTIONS_AND_MASKS))
"""Names of those that are compiled together: new ones of the one draw no other numbers for the other."""
NO_NUMBERS = (np.nan, np.inf, -np.inf, -0.0, 1e-40, 1e30)


@dataclass(frozen=True, eq=False)
class Suite:
    """All cases as the results of one function.

    Attributes:
        mod: Its function is `main`.
        places: The positions of the parameters of each case, by its name.
        weights: Its constants.
    """

    mod: tvm.IRModule
    places: Mapping[str, Sequence[int]]
    weights: Mapping[str, Sequence[np.ndarray]]

    @staticmethod
    def of(names: Sequence[str], seed: int = 0) -> Suite:
        """Return the cases of these names, with weights that are drawn."""
        rng = np.random.default_rng(seed)
        params: list[relax.Var] = []
        places, weights, results = dict[str, range](), dict[str, list[np.ndarray]](), list[relax.Expr]()
        for name in names:
            shapes = CASES[name].inputs
            places[name] = range(len(params), len(params) + len(shapes))
            params += [relax.Var(f"x{len(params) + at}", relax.TensorType(s, "float32")) for at, s in enumerate(shapes)]
            weights[name] = [rng.standard_normal(shape).astype(np.float32) for shape in CASES[name].weights]
        builder = relax.BlockBuilder()
        with builder.function("main", params):
            with builder.dataflow():
                for name in names:
                    operands = (*(params[place] for place in places[name]), *map(constant, weights[name]))
                    results.append(builder.emit_output(builder.normalize(CASES[name].build(*operands))))
            builder.emit_func_output(relax.Tuple(results))
        return Suite(builder.get(), places, weights)

    def results(self) -> dict[str, set[str]]:
        """Return the names of the variables that the operators of each case are bound to."""
        found, cases = dict[str, set[str]](), iter(self.places)
        names = set[str]()
        for block in self.mod["main"].body.blocks:
            for binding in block.bindings:
                if call_name(binding.value):
                    names.add(str(binding.var.name))
                if not isinstance(binding.var, relax.DataflowVar) and names:  # the result of a case is the last of it
                    found[next(cases)], names = names, set()
        assert list(found) == list(self.places)
        return found

    def draw(self, seed: int, special: bool = False) -> list[np.ndarray]:
        """Return inputs of all cases; with `special`, what is no number, -0.0 and numbers at the ends among them."""
        rng = np.random.default_rng(seed)
        shapes = [shape for name in self.places for shape in CASES[name].inputs]
        arrays = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
        if special:
            for array in arrays:
                count = min(len(NO_NUMBERS), array.size // 2)
                array.reshape(-1)[rng.permutation(array.size)[:count]] = NO_NUMBERS[:count]
        return arrays

    def expected(self, arrays: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Return what torch makes of each case in float64."""
        found = {}
        for name, places in self.places.items():
            operands = (*(arrays[place] for place in places), *self.weights[name])
            found[name] = CASES[name].torch(*(torch.from_numpy(each.astype(np.float64)) for each in operands)).numpy()
        return found
