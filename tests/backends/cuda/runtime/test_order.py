"""Which kernels of a graph wait for which: all that touch the same bytes, one of them writing, and no others."""

from __future__ import annotations

from itertools import combinations
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from backends.cuda.codegen import device_code
from fusion.order import Order, Touched, order_of, place_apart
from tests.backends.cuda.fake.fake_cuda import FakeCuda, fake_assemble
from tests.backends.cuda.order_zoo import Planned, compiled, planned
from tests.backends.cuda.test_models import model

_WIDTH = 16


def touched(reads: str, writes: str) -> Touched:
    return Touched(frozenset(reads), frozenset(writes))


def test_a_launch_waits_for_those_whose_memory_it_touches() -> None:
    given = [("x", "a"), ("x", "b"), ("a", "c"), ("b", "a"), ("abc", "y"), ("", "x")]
    order = order_of([touched(*each) for each in given])
    # the fourth writes over what the third reads; the last writes what only the first two read
    assert order.waits == ((), (), (0,), (1, 2), (3,), (0, 1))
    assert order.is_before(0, 4)
    assert not order.is_before(0, 1)


def random_launches(random: np.random.Generator) -> list[Touched]:
    def some(most: int) -> frozenset[int]:
        return frozenset(random.integers(0, 12, random.integers(0, most)).tolist())

    return [Touched(some(4), some(3)) for _ in range(30)]


def waits_through(order: Order, one: int, other: int) -> bool:
    return any(each == one or waits_through(order, one, each) for each in order.waits[other] if each >= one)


@pytest.mark.parametrize("seed", range(20))
def test_random_launches_wait_where_they_share_memory_and_nowhere_else(seed: int) -> None:
    random = np.random.default_rng(seed)
    launches = random_launches(random)
    order = order_of(launches)
    for one, other in combinations(range(len(launches)), 2):
        first, second = launches[one], launches[other]
        shared = first.writes & (second.reads | second.writes) or first.reads & second.writes
        assert order.is_before(one, other) == waits_through(order, one, other)
        assert order.is_before(one, other) or not shared, f"seed {seed}: {other} does not wait for {one}"
        if one in order.waits[other]:
            assert shared
            assert not any(order.is_before(one, each) for each in order.waits[other])  # it would wait for it anyway
    users = [((number, number + 1), int(random.integers(0, 5))) for number in range(0, 30, 2)]
    placed = place_apart(users, order)
    for (begin, held), (later, other_held) in combinations(zip((pair for pair, _ in users), placed, strict=True), 2):
        if held.start < other_held.stop and other_held.start < held.stop:
            assert all(order.is_before(one, other) for one in begin for other in later)


def weight(random: np.random.Generator, rows: int, columns: int) -> np.ndarray:
    return (random.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)


def towers() -> onnx.ModelProto:
    """Two branches that read one input, deep products that are split among blocks, and their sum."""
    random = np.random.default_rng(1)
    node, nodes, held = helper.make_node, [], {}
    for name in "ab":
        held |= {f"{name}u": weight(random, 2048, 32), f"{name}v": weight(random, 32, 8)}
        nodes += [
            node("MatMul", ["x", f"{name}u"], [f"{name}1"]),
            node("Softmax", [f"{name}1"], [f"{name}2"], axis=-1),
            node("MatMul", [f"{name}2", f"{name}v"], [f"{name}3"]),
            node("Softmax", [f"{name}3"], [f"{name}4"], axis=-1),
        ]
    nodes.append(node("Add", ["a4", "b4"], ["y"]))
    return model(nodes, (4, 2048), (4, 8), **held)


def random_model(seed: int) -> onnx.ModelProto:
    """A graph in which each operator reads what some others made; all that nobody reads is added up."""
    random = np.random.default_rng(seed)
    made, nodes, held, unread = ["x"], [], {}, set[str]()
    for number in range(14):
        kind = random.choice(["MatMul", "MatMul", "Softmax", "Add", "Transpose", "ReduceSum"])
        first, second = (str(random.choice(made[-6:])) for _ in range(2))
        inputs = [first, second] if kind == "Add" else [first]
        if kind == "MatMul":
            held[f"w{number}"] = weight(random, _WIDTH, _WIDTH)
            inputs.append(f"w{number}")
        name = f"t{number}"
        if kind == "ReduceSum":
            held["axes"] = np.array([1])
            nodes.append(helper.make_node(kind, [first, "axes"], [f"{name}s"], keepdims=1))
            kind, inputs = "Sub", [first, f"{name}s"]
        nodes.append(helper.make_node(str(kind), inputs, [name]))
        unread = (unread - set(inputs)) | {name}
        made.append(name)
    nodes.append(helper.make_node("Sum", sorted(unread), ["y"]))
    return model(nodes, (_WIDTH, _WIDTH), (_WIDTH, _WIDTH), **held)


def check(found: Planned) -> None:
    assert not list(found.wrong())
    assert found.needed() == sum(map(len, found.waits))


def test_branches_have_no_order_and_work_in_memory_of_their_own(tmp_path: Path) -> None:
    onnx.save(towers(), path := tmp_path / "towers.onnx")
    found = planned(compiled(path))
    check(found)
    assert found.depth() == (len(found.waits) - 1) // 2 + 1  # one branch, and the sum


@pytest.mark.parametrize("seed", range(6))
def test_kernels_of_random_models_wait_for_each_other_where_they_have_to(seed: int, tmp_path: Path) -> None:
    onnx.save(random_model(seed), path := tmp_path / "random.onnx")
    check(planned(compiled(path)))


def test_graphs_run_branches_in_any_order(fake: FakeCuda, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver of the tests runs nodes that do not wait for each other last to first, or in turns."""
    monkeypatch.setattr(device_code, "assemble", fake_assemble)
    made = towers()
    held = {each.name: onnx.numpy_helper.to_array(each).astype(np.float64) for each in made.graph.initializer}
    module = fusion.compile(made, "cuda", cache=False)

    def soft(x: np.ndarray) -> np.ndarray:
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    for seed in range(3):  # one by one, then by a graph
        x = np.random.default_rng(seed).standard_normal((4, 2048)).astype(np.float32)
        expected = sum(soft(soft(x @ held[f"{name}u"]) @ held[f"{name}v"]) for name in "ab")
        np.testing.assert_allclose(module(x)[0], expected, rtol=1e-5)
    assert fake.calls("cuGraphLaunch") == 2
