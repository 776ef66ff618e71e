"""Regions in which joining neighbours in order stands in its own way, and what exploration makes of them."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import Phase, given, settings
from tvm import relax, tirx
from tvm.relax import op

from partition import form_groups
from partition.access import AccessSummary, MappingKind
from partition.dataflow import DataflowNode, Groups, read_graph
from partition.emit_groups import outputs_of
from partition.form_groups import FormGroups
from partition.formed import saved_bytes
from partition.patterns import ContestedRegion
from partition.profitability import Profitability, no_template
from tests.partition.test_form_groups import build_graph, graphs, grouped, legal
from tests.passes.modules import Build, normal, weight

X = normal(6, 32)
START_BYTES = 64_000


def kernels(build: Build, *arrays: np.ndarray, profitability: Profitability = no_template) -> set[tuple[str, ...]]:
    """Return the names of the functions that share a kernel, for kernels of several."""
    groups, _ = FormGroups(profitability, start_bytes=START_BYTES).join(read_graph(legal(build, list(arrays))))
    return {tuple(node.name for node in group) for group in groups.all() if len(group) > 1}


@pytest.fixture
def in_order(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Return what switches exploration off."""
    return lambda: monkeypatch.setattr(form_groups, "explore", lambda groups, declined, verdicts, start_bytes: [])


def other_rows(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    """A value of 192 elements becomes one of 768, of which each row of 192 is summed."""
    return op.sum(b.emit(op.add(b.emit(op.nn.softmax(x)), weight(4, 6, 32))), [1, 2])


def test_a_small_value_does_not_keep_a_large_one_in_memory(in_order: Callable[[], None]) -> None:
    assert kernels(other_rows, X) == {("add", "sum")}
    count, reasons = grouped(other_rows, X)
    assert count == 2
    assert reasons == ["each saves more in another kernel"]
    in_order()
    assert kernels(other_rows, X) == {("softmax", "add")}


def test_a_reshape_that_several_of_a_kernel_read_is_part_of_it(in_order: Callable[[], None]) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        view = b.emit(op.reshape(b.emit(op.matmul(x, weight(32, 16))), (6, 4, 4)))
        return op.add(b.emit(op.exp(view)), b.emit(op.tanh(view)))

    assert kernels(build, X) == {("matmul", "reshape", "tir_exp", "tanh", "add")}
    assert grouped(build, X)[0] == 1
    in_order()
    assert kernels(build, X) == {("matmul", "reshape"), ("tir_exp", "tanh", "add")}


def short(kernel: tirx.PrimFunc) -> str:
    """Take kernels of at most two operators."""
    stages = kernel.body.block.body
    return "too many stages" if isinstance(stages, tirx.SeqStmt) and len(stages) > 2 else ""


def test_what_makes_the_rows_of_a_matmul_leaves_a_kernel_in_which_it_could_not(in_order: Callable[[], None]) -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        scale = b.emit(op.exp(weight(1, 32)))
        return op.matmul(b.emit(op.multiply(x, scale)), weight(32, 16))

    assert kernels(build, X, profitability=short) == {("multiply", "matmul")}
    in_order()
    assert kernels(build, X, profitability=short) == {("tir_exp", "multiply")}


def test_equal_regions_are_explored_once(monkeypatch: pytest.MonkeyPatch) -> None:
    explored, best = [], ContestedRegion.best_kernels

    def count(region: ContestedRegion) -> list[list[DataflowNode]]:
        explored.append(region)
        return best(region)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        inputs = [b.emit(op.matmul(x, weight(32, 32, seed=seed))) for seed in range(5)]
        return relax.Tuple([b.emit(other_rows(b, value)) for value in inputs])

    monkeypatch.setattr(ContestedRegion, "best_kernels", count)
    assert grouped(build, X)[1].count("each saves more in another kernel") == 5
    assert len(explored) == 1


def test_groups_that_would_wait_for_each_other_are_not_made() -> None:
    nodes = [
        DataflowNode(index, relax.Var(f"v{index}"), relax.Tuple([]), AccessSummary(MappingKind.ELEMENTWISE))
        for index in range(4)
    ]
    for source, target in ((0, 2), (1, 3)):
        nodes[target].inputs.append(nodes[source])
        nodes[target].operands.append(nodes[source])
        nodes[source].consumers.append(nodes[target])
    groups = Groups(nodes)
    before = groups.all()
    assert not groups.regroup(before, [[nodes[0], nodes[3]], [nodes[1], nodes[2]]])
    assert groups.all() == before
    assert groups.regroup(before, [[nodes[0], nodes[2]], [nodes[1], nodes[3]]])
    assert groups.of(nodes[0]) is groups.of(nodes[2])


def value(build: Build) -> int:
    """Return what the kernels save, in bytes, starts of kernels among them."""
    nodes = read_graph(legal(build, [normal(16, 16)]))
    groups, _ = FormGroups(start_bytes=START_BYTES).join(nodes)
    return sum(saved_bytes(group, outputs_of(group)) for group in groups.all()) - START_BYTES * len(groups.all())


@settings(max_examples=40, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(graphs())
def test_no_graph_gets_worse(steps: list[tuple[str, int, int]]) -> None:
    explored = value(build_graph(steps))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(form_groups, "explore", lambda groups, declined, verdicts, start_bytes: [])
        assert explored >= value(build_graph(steps))
