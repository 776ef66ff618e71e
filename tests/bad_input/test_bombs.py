"""What would take all time or memory while it is compiled is refused, or left to the run, and neither takes long."""

from __future__ import annotations

import resource
import time

import numpy as np
import onnx
import onnx.parser
import pytest

import fusion
from fusion.errors import InvalidModelError, LimitError
from fusion.frontends import import_model
from fusion.frontends.onnx.fold_cost import Budget, FoldCost, cost_of
from tests.bad_input.bombs import BOMBS, model, node

COMPILED = {
    "branches_within_each_other",
    "many_updates",
    "product_of_large_matrices",
    "regular_expression_that_backtracks",
}
WITHOUT_END = {"loop_without_an_end"}
SECONDS = 60
"""On a machine that does much else."""
BYTES = 3 << 30


@pytest.mark.parametrize("name", sorted(BOMBS.keys() - COMPILED - WITHOUT_END))
def test_what_is_too_large_is_refused(name: str) -> None:
    proto, started = BOMBS[name](), time.process_time()
    with pytest.raises((LimitError, InvalidModelError, fusion.errors.UnsupportedOperatorError)):
        import_model(proto)
    assert time.process_time() - started < SECONDS
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < BYTES // 1024


@pytest.mark.parametrize("name", sorted(COMPILED))
def test_what_is_costly_is_left_to_the_run(name: str) -> None:
    proto, started = BOMBS[name](), time.process_time()
    (result,) = fusion.compile(proto)(np.ones(2, np.float32))
    assert result.shape == (2,)
    assert time.process_time() - started < SECONDS


@pytest.mark.parametrize("name", sorted(WITHOUT_END))
def test_a_loop_without_an_end_compiles(name: str) -> None:
    assert import_model(BOMBS[name]()).fallbacks


def test_nested_calls_count_as_deep_as_they_are() -> None:
    proto = BOMBS["functions_that_call_the_last_twice"]()
    kept = [function for function in proto.functions if int(function.name[1:]) <= 4]
    del proto.functions[:]
    proto.functions.extend(kept)
    proto.graph.node[0].op_type = "F4"
    np.testing.assert_array_equal(fusion.compile(proto)(np.ones(2, np.float32))[0], np.ones(2, np.float32))


@pytest.mark.parametrize(
    ("made", "arrays", "elements"),
    [
        (node("Add", ["a", "b"], ["c"]), [(3, 1), (1, 5)], 15),
        (node("Concat", ["a", "b"], ["c"], axis=0), [(3,), (4,)], 7),
        (node("Gather", ["a", "b"], ["c"], axis=1), [(3, 5), (2, 2)], 12),
        (node("NonZero", ["a"], ["c"]), [(3, 5)], 30),
        (node("MatMul", ["a", "b"], ["c"]), [(2, 3), (3, 4)], 8),
        (node("MatMul", ["a", "b"], ["c"]), [(5, 1, 2, 3), (6, 3, 4)], 240),
        (node("MatMul", ["a", "b"], ["c"]), [(3,), (3, 4)], 4),
        (node("MatMul", ["a", "b"], ["c"]), [(2, 3), (3,)], 2),
        (node("MatMul", ["a", "b"], ["c"]), [(2, 3), (4, 3)], None),
        (node("Gemm", ["a", "b"], ["c"], transA=1, transB=1), [(3, 2), (4, 3)], 8),
        (node("Conv", ["a", "b"], ["c"]), [(1, 1, 3), (1, 1, 3)], None),
        (node("Add", ["a", "b"], ["c"]), [(3,), (5,)], None),
        (node("Gather", ["a", "b"], ["c"], axis=7), [(3, 5), (2, 2)], None),
    ],
)
def test_the_cost_of_a_node(made: onnx.NodeProto, arrays: list[tuple[int, ...]], elements: int | None) -> None:
    cost = cost_of(made, [np.zeros(shape, np.int64) for shape in arrays])
    assert (None if cost is None else cost.elements) == elements


def test_the_time_of_a_product_is_that_of_its_multiplications() -> None:
    made, shape = node("MatMul", ["a", "b"], ["c"]), (1000, 1000)
    floats, integers = (cost_of(made, [np.zeros(shape, dtype)] * 2) for dtype in (np.float32, np.int64))
    assert floats is not None
    assert integers is not None
    assert 10**8 < floats.nanoseconds < 2 * 10**8
    assert integers.nanoseconds > 10**10


def test_a_budget_ends() -> None:
    budget = Budget()
    assert not budget.take(FoldCost(5 << 20, 0), 4, 0)
    assert budget.take(FoldCost(4 << 20, 0), 4, 0)
    assert sum(budget.take(FoldCost(4 << 20, 0), 4, 0) for _ in range(100)) == 15
    assert not Budget().take(FoldCost(1, 10**12), 4, 0)


def test_many_turns_of_a_weight_hold_little_memory() -> None:
    """400 of 4 MB each; a budget holds those that are made."""
    nodes = [node("Transpose", [f"v{i}"], [f"v{i + 1}"]) for i in range(400)]
    proto = model([*nodes, node("Mul", ["v400", "x"], ["y"])], v0=np.ones((1, 1 << 20), np.float32))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(fusion.FusionError):
        import_model(proto)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 2 << 20


def test_what_only_the_run_knows_to_be_too_large() -> None:
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Mul", ["m", "huge"], ["f"]),
        node("Cast", ["f"], ["n"], to=onnx.TensorProto.INT64),
        node("Range", ["a", "n", "c"], ["r"]),
        node("ReduceMax", ["r"], ["z"], keepdims=0),
        node("Cast", ["z"], ["zf"], to=onnx.TensorProto.FLOAT),
        node("Add", ["x", "zf"], ["y"]),
    ]
    module = fusion.compile(model(nodes, huge=np.float32(1e12), a=np.int64(0), c=np.int64(1)))
    with pytest.raises(fusion.errors.ExecutionError):
        module(np.ones(2, np.float32))
    np.testing.assert_array_equal(module(np.full(2, 4e-12, np.float32))[0], np.full(2, 4e-12 + 3, np.float32))


@pytest.mark.parametrize("shapes", [None, {"x": (7, 2**31 - 1, 9)}], ids=["declared", "asked for"])
def test_an_input_that_fits_no_memory_is_refused(shapes: dict[str, tuple[int, ...]] | None) -> None:
    """TVM's passes over loops of so many turns did not end."""
    extent = 2**31 - 1 if shapes is None else 0
    text = '<ir_version: 8, opset_import: ["": 17]> graph (float[7,N,9] x) => (float[A,B,C] y) { y = ReduceMax(x) }'
    proto = onnx.parser.parse_model(text.replace("N", str(extent) if extent else "N"))
    with pytest.raises(LimitError, match="input 'x'"):
        fusion.compile(proto, shapes=shapes)
