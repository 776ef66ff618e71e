"""Groups of kernels: what joins, what must not, acyclic on any graph, and results that stay."""

from __future__ import annotations

import time

import networkx
import numpy as np
import pytest
import tvm
import tvm_ffi
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from tvm import relax
from tvm.relax import op

from backends.cpu.lowerings import lowerings
from backends.tensorir.legalize import LEGALIZATIONS
from backends.tensorir.lower_anchors import LowerAnchors
from fusion.bindings import Bindings
from partition.dataflow import read_graph
from partition.form_groups import FormGroups
from tests.passes.modules import Build, canonical, evaluate, module, normal, weight


def legal(build: Build, arrays: list[np.ndarray]) -> tvm.IRModule:
    """Return the module of TensorIR calls that the partition sees."""
    mod = relax.transform.LegalizeOps(LEGALIZATIONS)(LowerAnchors(lowerings(16))(module(build, arrays)))
    return canonical(mod)


def grouped(build: Build, *arrays: np.ndarray) -> tuple[int, list[str]]:
    """Return how many kernels are left, whose results must agree, and why edges stayed."""
    mod, same = (legal(build, list(arrays)) for _ in range(2))
    groups = FormGroups().run(mod)
    after = groups.mod
    assert tvm_ffi.structural_equal(mod, same), "the pass changed its input"
    relax.analysis.well_formed(after)
    merged = relax.transform.FuseTIR()(after)
    for got, want in zip(evaluate(merged, arrays), evaluate(mod, arrays), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)
    kernels = [value for _, value in Bindings.of(merged["main"]).values.items() if isinstance(value, relax.Call)]
    return len(kernels), [kept.reason for kept in groups.fact.kept]


X = normal(6, 32)
LARGE = normal(96, 64)


def test_epilogues_join_their_anchor() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var, y: relax.Var) -> relax.Expr:
        return op.nn.relu(op.add(op.add(op.matmul(x, weight(32, 16)), weight(16)), y))

    assert grouped(build, X, normal(6, 16)) == (1, [])


def test_two_anchors_stay_apart() -> None:
    kernels, reasons = grouped(lambda b, x: op.matmul(op.nn.relu(op.matmul(x, weight(32, 16))), weight(16, 8)), X)
    assert kernels == 2
    assert "no template" in reasons[0]


def test_a_sum_of_two_anchors_joins_one_of_them() -> None:
    kernels, reasons = grouped(
        lambda b, x: op.add(op.matmul(x, weight(32, 16)), op.matmul(x, weight(32, 16, seed=1))), X
    )
    assert kernels == 2
    assert reasons == ["the consumer is already part of another kernel"]


def test_memory_bound_chains_become_one_kernel() -> None:
    assert grouped(lambda b, x: op.nn.softmax(op.multiply(op.exp(op.tanh(x)), weight(32))), X)[0] == 1


def test_a_value_that_is_also_returned_is_a_second_output() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        total = b.emit(op.add(x, weight(6, 32)))
        return relax.Tuple([total, b.emit(op.nn.softmax(total))])

    assert grouped(build, X)[0] == 1 + 0 or grouped(build, X)[0] == 3  # a call and the parts of its tuple


def test_diamonds_join() -> None:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        top = b.emit(op.exp(x))
        return op.add(b.emit(op.tanh(top)), b.emit(op.sin(top)))

    assert grouped(build, X)[0] == 1


def test_arguments_repeated_and_shared_by_groups() -> None:
    shared = weight(6, 32)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        first = b.emit(op.multiply(op.add(x, x), shared))
        second = b.emit(op.matmul(first, weight(32, 32)))
        return op.add(op.multiply(op.multiply(second, second), shared), op.multiply(x, shared))

    grouped(build, X)


def test_a_group_does_not_read_itself_through_another_kernel() -> None:
    """exp feeds a matmul, whose result would join exp's group: exp -> matmul -> add."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        top = b.emit(op.exp(x))
        return op.add(top, b.emit(op.concat([b.emit(op.strided_slice(top, [1], [0], [16])), weight(96, 48)], 1)))

    kernels, reasons = grouped(build, LARGE)
    assert kernels >= 3
    assert "a path between them leaves the kernel" in reasons


DECLINED: dict[str, tuple[Build, str]] = {
    "reduction behind an anchor": (lambda b, x: op.nn.softmax(op.matmul(x, weight(64, 64))), "not an epilogue"),
    "larger than the anchor": (lambda b, x: op.add(op.matmul(x, weight(64, 64)), weight(3, 96, 64)), "another size"),
    "transpose behind an anchor": (lambda b, x: op.permute_dims(op.matmul(x, weight(64, 64))), "contiguous axis"),
    "opaque": (lambda b, x: op.exp(op.nn.pad(op.exp(x), [1, 1, 1, 1])), "not analysed"),
    "behind an opaque one": (lambda b, x: op.exp(op.concat([x, x], 0)), "not analysed"),
    "two reductions": (lambda b, x: op.sum(op.nn.softmax(x, 0), [0]), "reduces leading axes"),
    "other rows": (lambda b, x: op.sum(op.nn.softmax(x), [0, 1]), "other rows"),
    "behind a transpose": (lambda b, x: op.nn.relu(op.permute_dims(x)), "transpose"),
    "recomputed": (lambda b, x: op.add(op.exp(x), weight(3, 96, 64)), "again for every row"),
}


@pytest.mark.parametrize("name", DECLINED)
def test_rules_decline_with_a_reason(name: str) -> None:
    build, reason = DECLINED[name]
    kernels, reasons = grouped(build, LARGE)
    assert kernels >= 2
    assert any(reason in given for given in reasons), reasons


# --- any graph ---

STEPS = ["exp", "tanh", "add", "add", "softmax", "sum", "transpose", "matmul", "concat", "reshape"]


@st.composite
def graphs(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Draw operators on 16 x 16 matrices: (name, first operand, second operand), by the number of the value."""
    count = draw(st.integers(3, 14))
    pick = lambda i: draw(st.integers(max(0, i - 4), i))  # noqa: E731
    return [(draw(st.sampled_from(STEPS)), pick(i), pick(i)) for i in range(count)]


def build_graph(steps: list[tuple[str, int, int]]) -> Build:
    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        values = [x]
        for name, i, j in steps:
            values.append(b.emit(_STEPS[name](b, values[i], values[j])))
        return relax.Tuple(values[-3:])

    return build


_STEPS = {
    "exp": lambda b, x, y: op.exp(b.emit(op.tanh(x))),
    "tanh": lambda b, x, y: op.tanh(x),
    "add": lambda b, x, y: op.add(x, y),
    "softmax": lambda b, x, y: op.nn.softmax(x),
    "sum": lambda b, x, y: op.add(y, b.emit(op.mean(x, [0], keepdims=True))),
    "transpose": lambda b, x, y: op.permute_dims(x),
    "matmul": lambda b, x, y: op.matmul(b.emit(op.tanh(x)), weight(16, 16)),
    "concat": lambda b, x, y: op.strided_slice(b.emit(op.concat([x, y], 0)), [0], [8], [24]),
    "reshape": lambda b, x, y: op.reshape(b.emit(op.reshape(x, (4, 64))), (16, 16)),
}


@settings(max_examples=40, deadline=None, derandomize=True, database=None)
@given(graphs())
def test_contracted_groups_have_no_cycle(steps: list[tuple[str, int, int]]) -> None:
    nodes = read_graph(legal(build_graph(steps), [normal(16, 16)]))
    groups, _ = FormGroups().join(nodes)
    edges = [(id(groups.of(source)), id(groups.of(node))) for node in nodes for source in node.inputs]
    contracted = networkx.DiGraph((a, b) for a, b in edges if a != b)
    assert networkx.is_directed_acyclic_graph(contracted)
    assert sorted(node.index for group in groups.all() for node in group) == list(range(len(nodes)))


@settings(max_examples=6, deadline=None, derandomize=True, database=None, phases=[Phase.generate])
@given(graphs())
def test_groups_of_any_graph_keep_its_results(steps: list[tuple[str, int, int]]) -> None:
    grouped(build_graph(steps), normal(16, 16))


def chain(length: int) -> tvm.IRModule:
    """Return a deep graph whose first value, as the mask of a decoder, is read at every depth."""

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        values = [b.emit(op.exp(x))]
        for i in range(length // 4):
            y = b.emit(op.matmul(values[-1], weight(16, 16)) if i % 2 else op.concat([values[-1], values[-1]], 0))
            y = y if i % 2 else b.emit(op.strided_slice(y, [0], [8], [24]))
            values.append(b.emit(op.add(values[0], b.emit(op.nn.relu(y)))))
        return op.add(values[-1], values[len(values) // 2])

    return legal(build, [normal(16, 16)])


def test_time_grows_with_the_size_of_the_graph() -> None:
    taken = []
    for length in (500, 2000):
        mod = chain(length)
        nodes = read_graph(mod)
        start = time.process_time()
        FormGroups().join(nodes)
        taken.append(time.process_time() - start)
    assert taken[1] < 14 * taken[0] + 0.1, taken  # a search per edge that copies its set of seen groups is cubic


def saved(build: Build, *arrays: np.ndarray) -> list[int]:
    """Return what each kernel saves."""
    groups = FormGroups().run(legal(build, list(arrays))).fact
    return [formed.saved for formed in groups.formed if len(formed.members) > 1]


def test_savings_count_each_write_and_read_inside_a_kernel() -> None:
    size = 6 * 32 * 4

    def diamond(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        left = b.emit(op.exp(x))
        return op.add(op.tanh(left), left)

    # exp is written once and read twice, tanh written and read once.
    assert saved(diamond, X) == [3 * size + 2 * size]

    def returned(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        total = b.emit(op.exp(x))
        return relax.Tuple([total, b.emit(op.tanh(total))])

    # exp is written all the same: only the read is saved.
    assert saved(returned, X) == [size]

    def reshaped(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        return op.tanh(op.reshape(op.exp(x), (32, 6)))

    # The reshape between them moves nothing.
    assert saved(reshaped, X) == [2 * size]
