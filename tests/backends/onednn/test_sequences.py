"""Regions of several operators on oneDNN: values stay in the order in memory in which a primitive made them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional
from tvm import relax
from tvm.relax import op

from backends import registry
from backends.onednn import work
from fusion.constants import constant
from fusion.errors import NotInstalledError


@pytest.fixture(scope="module")
def library() -> Any:
    try:
        return registry.library("onednn")
    except NotInstalledError as error:
        pytest.skip(str(error))


@pytest.fixture(autouse=True)
def _shared(monkeypatch: pytest.MonkeyPatch) -> None:
    """However short it is, a sequence runs on as many threads as are asked for."""
    monkeypatch.setattr(work, "_SHARED_US", 0.0)


@dataclass
class Drawn:
    """A graph, built twice: as a function of Relax, and as what torch makes of inputs in float64.

    Attributes:
        rng: What it is drawn with.
        shapes: Of its inputs.
    """

    rng: np.random.Generator
    shapes: Sequence[tuple[int, ...]]
    builder: relax.BlockBuilder = field(default_factory=relax.BlockBuilder)

    def __post_init__(self) -> None:
        self.params = [relax.Var(f"x{at}", relax.TensorType(shape, "float32")) for at, shape in enumerate(self.shapes)]
        self.steps: list[Callable[[list[torch.Tensor]], torch.Tensor]] = []
        self.values: list[relax.Expr] = list(self.params)

    def emit(self, value: relax.Expr, step: Callable[[list[torch.Tensor]], torch.Tensor]) -> int:
        self.values.append(self.builder.emit(value))
        self.steps.append(step)
        return len(self.values) - 1

    def weight(self, *shape: int) -> np.ndarray:
        return (self.rng.standard_normal(shape) / np.sqrt(np.prod(shape[1:]) or 1)).astype(np.float32)

    def conv(self, x: int, channels: int, kernel: int = 3, groups: int = 1, stride: int = 1) -> int:
        have = int(self.values[x].ty.shape.values[1])
        w, pad = self.weight(channels, have // groups, kernel, kernel), kernel // 2
        padding, strides = (pad,) * 4, (stride, stride)
        value = op.nn.conv2d(self.values[x], constant(w), strides=strides, padding=padding, groups=groups)
        return self.emit(
            value,
            lambda v: functional.conv2d(v[x], torch.from_numpy(w).double(), stride=stride, padding=pad, groups=groups),
        )

    def bias(self, x: int) -> int:
        b = self.weight(1, int(self.values[x].ty.shape.values[1]), 1, 1)
        return self.emit(op.add(self.values[x], constant(b)), lambda v: v[x] + torch.from_numpy(b).double())

    def unary(self, x: int, name: str) -> int:
        build, torch_of = UNARY[name]
        return self.emit(build(self.values[x]), lambda v: torch_of(v[x]))

    def binary(self, x: int, y: int, name: str) -> int:
        build, torch_of = BINARY[name]
        return self.emit(build(self.values[x], self.values[y]), lambda v: torch_of(v[x], v[y]))

    def function(self, build: Callable[[Drawn], Sequence[int]]) -> tuple[relax.Function, tuple[int, ...]]:
        """Return what `build` emits, and which values are its results."""
        with self.builder.function("region", self.params):
            with self.builder.dataflow():
                places = tuple(build(self))
                results = [self.values[place] for place in places]
                result = self.builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
            self.builder.emit_func_output(result)
        return self.builder.finalize()["region"], places

    def expected(self, arrays: Sequence[np.ndarray], places: Sequence[int]) -> list[np.ndarray]:
        values = [torch.from_numpy(array.astype(np.float64)) for array in arrays]
        for step in self.steps:
            values.append(step(values))
        return [values[place].numpy() for place in places]

    def inputs(self, seed: int = 0) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        return [rng.standard_normal(shape).astype(np.float32) for shape in self.shapes]


UNARY = {
    "relu": (op.nn.relu, functional.relu),
    "relu6": (lambda x: op.clip(x, 0.0, 6.0), functional.relu6),
    "clip": (lambda x: op.clip(x, -0.5, 0.25), lambda x: x.clamp(-0.5, 0.25)),
    "silu": (op.nn.silu, functional.silu),
    "sigmoid": (op.sigmoid, torch.sigmoid),
    "pool": (lambda x: op.nn.avg_pool2d(x, (3, 3), (1, 1), (1, 1, 1, 1)), lambda x: functional.avg_pool2d(
        x, 3, 1, 1, count_include_pad=False
    )),
    "square": (lambda x: op.multiply(x, x), torch.square),
}  # fmt: skip
BINARY = {
    "add": (op.add, torch.add), "multiply": (op.multiply, torch.multiply), "subtract": (op.subtract, torch.subtract)
}  # fmt: skip


def check(executable: Any, drawn: Drawn, places: Sequence[int], seed: int) -> None:
    arrays = drawn.inputs(seed)
    for found, wanted in zip(executable(arrays), drawn.expected(arrays, places), strict=True):
        assert found.shape == wanted.shape
        np.testing.assert_allclose(found, wanted, rtol=0, atol=3e-6 * max(1.0, float(np.abs(wanted).max())))


def bottlenecks(drawn: Drawn) -> list[int]:
    """Blocks as MobileNetV2 has them: points, depthwise, points, and what is added."""
    x = drawn.unary(drawn.bias(drawn.conv(0, 16)), "relu6")
    for _ in range(3):
        y = drawn.unary(drawn.bias(drawn.conv(x, 96, 1)), "relu6")
        y = drawn.unary(drawn.bias(drawn.conv(y, 96, 3, groups=96)), "relu6")
        x = drawn.binary(x, drawn.bias(drawn.conv(y, 16, 1)), "add")
    return [x]


def test_images_are_reordered_at_the_edges_only(library: Any) -> None:
    drawn = Drawn(np.random.default_rng(0), [(1, 16, 12, 12)])
    function, places = drawn.function(bottlenecks)
    executable = library.open(library.export(function), 2)
    products, bounds = 10, 7 * 2
    assert len(executable.plan.steps) <= products + bounds + 2, "a reorder of the input, and one of the result"
    check(executable, drawn, places, 1)
    values = sum(4 * 96 * 12 * 12 for _ in range(6))
    assert executable.arena_bytes < values, "values share memory"


def test_calls_at_a_time_have_memory_apart(library: Any) -> None:
    drawn = Drawn(np.random.default_rng(1), [(1, 16, 12, 12)])
    function, places = drawn.function(bottlenecks)
    executable = library.open(library.export(function), 2)
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda seed: check(executable, drawn, places, seed), range(24)))


def test_bounds_in_place_keep_what_is_no_number(library: Any) -> None:
    drawn = Drawn(np.random.default_rng(2), [(1, 20, 6, 5)])
    function, places = drawn.function(lambda d: [d.unary(d.unary(d.conv(0, 24, 1), "relu6"), "clip")])
    (x,) = drawn.inputs()
    x[0, 0, 0, 0], x[0, 1, 2, 2], x[0, 2, 4, 4] = np.nan, np.inf, -np.inf
    (found,) = library.open(library.export(function), 2)([x])
    (wanted,) = drawn.expected([x], places)
    np.testing.assert_array_equal(np.isnan(found), np.isnan(wanted))
    np.testing.assert_allclose(found, wanted, atol=1e-6)
    assert np.isnan(found).sum() == 24


def test_a_value_that_is_a_result_or_read_later_is_not_overwritten(library: Any) -> None:
    def build(drawn: Drawn) -> list[int]:
        x = drawn.conv(0, 24)
        y = drawn.unary(x, "relu")
        z = drawn.unary(y, "clip")
        return [x, drawn.binary(y, z, "add"), z]

    drawn = Drawn(np.random.default_rng(3), [(2, 5, 7, 6)])
    function, places = drawn.function(build)
    check(library.open(library.export(function), 2), drawn, places, 4)


def test_a_bound_of_the_input_leaves_that_as_it_is(library: Any) -> None:
    drawn = Drawn(np.random.default_rng(4), [(1, 8, 5, 5)])
    function, places = drawn.function(lambda d: [d.unary(0, "relu")])
    executable = library.open(library.export(function), 2)
    (x,) = drawn.inputs(5)
    before = x.copy()
    executable([x])
    np.testing.assert_array_equal(x, before)
    check(executable, drawn, places, 5)


@pytest.mark.parametrize("seed", range(40))
def test_drawn_graphs(library: Any, seed: int) -> None:
    """Values that several operators read, in several orders in memory, some of them results too."""

    def build(drawn: Drawn) -> list[int]:
        rng = drawn.rng
        same = [0, 1]
        for _ in range(int(rng.integers(3, 14))):
            x = int(rng.choice(same[-4:]))
            kind = rng.choice(["conv", "points", "depthwise", "groups", "bias", "unary", "binary"])
            if kind == "unary":
                same.append(drawn.unary(x, str(rng.choice(list(UNARY)))))
            elif kind == "binary":
                same.append(drawn.binary(x, int(rng.choice(same)), str(rng.choice(list(BINARY)))))
            elif kind == "bias":
                same.append(drawn.bias(x))
            else:
                groups = {"depthwise": channels, "groups": 2}.get(str(kind), 1)
                same.append(drawn.conv(x, channels, 1 if kind == "points" else 3, groups))
        last = len(drawn.values) - 1
        return sorted({last, int(rng.integers(2, last + 1))})

    rng = np.random.default_rng(seed)
    channels = int(rng.choice([4, 16, 20]))
    shape = (int(rng.integers(1, 3)), channels, int(rng.integers(3, 9)), int(rng.integers(3, 9)))
    drawn = Drawn(rng, [shape, shape])
    function, places = drawn.function(build)
    assert not [why for each in calls(function) if (why := library.why_not_taken(each))]
    executable = library.open(library.export(function), int(rng.integers(1, 3)))
    for again in range(2):
        check(executable, drawn, places, again)


def calls(function: relax.Function) -> list[relax.Call]:
    return [each.value for each in function.body.blocks[0].bindings if isinstance(each.value, relax.Call)]
