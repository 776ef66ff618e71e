"""Values that cross an If lie in planned memory, and conditions outlast the run."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import fusion
from fusion.module.live_ranges import LiveRange
from fusion.module.plan import RunPlan
from fusion.module.program import KernelProgram
from tests.frontends.models import branch, choose
from tests.module import small_models
from tests.module.small_models import BOOL, FLOAT

SIZE = 8 * 16 * 4
ZERO = {"zero": np.zeros((), np.float32)}


def positive(source: str, condition: str) -> list[onnx.NodeProto]:
    """Return nodes that compute whether `source` has a positive element."""
    largest = f"{condition}_largest"
    return [
        helper.make_node("ReduceMax", [source], [largest], keepdims=0),
        helper.make_node("Greater", [largest, "zero"], [condition]),
    ]


def unary(operator: str, source: str, result: str) -> onnx.GraphProto:
    """Return a branch of one operator."""
    return branch([helper.make_node(operator, [source], [result])], [result])


def compile_plan(nodes: list[onnx.NodeProto], outputs: dict[str, int]) -> tuple[fusion.CompiledModule, RunPlan]:
    """Compile a model of x[8, 16], compare it with ONNX Runtime, and return it with its plan."""
    shapes: dict[int, list[int | str]] = {FLOAT: [8, 16], BOOL: []}
    results = [(name, kind, shapes[kind]) for name, kind in outputs.items()]
    model = small_models.model(nodes, [("x", FLOAT, [8, 16])], results, ZERO)
    module = fusion.compile(model)
    session = ort.InferenceSession(model.SerializeToString())
    kept = []
    for x in (positive_x(), -positive_x(), positive_x()):
        expected = session.run(None, {"x": x})
        found = module(x)
        kept.append((found, expected))
    for found, expected in kept:  # outputs are not overwritten by later runs
        for array, wanted in zip(found, expected, strict=True):
            np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6)
    program = module.specializations[0].program
    assert isinstance(program, KernelProgram)
    return module, program.plan


def positive_x() -> np.ndarray:
    return np.abs(np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)) + 1


def profiled(module: fusion.CompiledModule, x: np.ndarray) -> set[str]:
    """Return the operators of the profiled kernels, of those that the tests put into branches."""
    names = {kernel.kernel for kernel in module.profile({"x": x}, seconds=0).kernels}
    return {word for word in ("tanh", "sigmoid", "abs", "exp") for name in names if word in name}


def test_what_crosses_an_if_is_planned() -> None:
    """c, h and both branches' results: the results share memory, as there is only one of them."""
    nodes = [
        *positive("x", "c"),
        helper.make_node("Softmax", ["x"], ["h"]),
        choose("c", ["r"], unary("Tanh", "h", "t"), unary("Sigmoid", "h", "e")),
        helper.make_node("Softmax", ["r"], ["y"]),
    ]
    module, plan = compile_plan(nodes, {"y": FLOAT})
    assert sum(plan.storages) == 1 + 2 * SIZE
    fresh = {argument for call in plan.calls for argument in call.arguments if argument.kind == "fresh"}
    assert len(fresh) == 2  # r, which is the memory of a branch, and y
    assert [output.owned for output in plan.outputs] == [True]
    assert profiled(module, positive_x()) == {"tanh"}
    assert profiled(module, -positive_x()) == {"sigmoid"}


def test_what_lives_after_another_value_takes_its_memory() -> None:
    """In a chain of Ifs each reads the result of the one before, so that two storages are enough."""
    nodes = positive("x", "c")
    for index in range(5):
        source = f"h{index}" if index else "x"
        nodes.append(choose("c", [f"h{index + 1}"], unary("Tanh", source, "t"), unary("Sigmoid", source, "e")))
    _, plan = compile_plan([*nodes, helper.make_node("Softmax", ["h5"], ["y"])], {"y": FLOAT})
    assert sum(plan.storages) == 1 + 2 * SIZE


def test_results_of_branches_and_conditions_may_be_outputs() -> None:
    """A value that crosses an If is an output too, as are its condition and its result."""
    nodes = [
        *positive("x", "c"),
        helper.make_node("Softmax", ["x"], ["h"]),
        choose("c", ["y"], unary("Tanh", "h", "t"), branch([helper.make_node("Identity", ["h"], ["e"])], ["e"])),
    ]
    _, plan = compile_plan(nodes, {"y": FLOAT, "h": FLOAT, "c": BOOL})
    assert [output.owned for output in plan.outputs] == [False, True, False]


def test_profile_takes_the_branch_of_a_condition_that_an_if_leads_to() -> None:
    nodes = [
        *positive("x", "c"),
        choose("c", ["h"], unary("Neg", "x", "t0"), unary("Exp", "x", "e0")),
        *positive("h", "d"),
        choose("d", ["y"], unary("Tanh", "x", "t"), unary("Sigmoid", "x", "e")),
    ]
    module, _ = compile_plan(nodes, {"y": FLOAT})
    assert profiled(module, positive_x()) == {"sigmoid"}
    assert profiled(module, -positive_x()) == {"exp", "tanh"}


def test_profile_takes_the_branch_of_a_condition_from_a_fallback() -> None:
    nodes = [
        helper.make_node("Reshape", ["x", "shape"], ["square"]),
        helper.make_node("Slice", ["square", "first", "last", "axes"], ["corner"]),
        helper.make_node("Det", ["corner"], ["determinant"]),
        helper.make_node("Greater", ["determinant", "zero"], ["c"]),
        choose("c", ["y"], unary("Tanh", "x", "t"), unary("Sigmoid", "x", "e")),
    ]
    constants = {"shape": np.array([8, 16]), "first": np.array([0, 0]), "last": np.array([1, 1])}
    model = small_models.model(
        nodes, [("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 16])], {**ZERO, **constants, "axes": np.array([0, 1])}
    )
    module = fusion.compile(model)
    assert "Det" in {node.op for node in module.specializations[0].fallbacks}
    assert profiled(module, positive_x()) == {"tanh"}
    assert profiled(module, -positive_x()) == {"sigmoid"}


def test_profile_leaves_both_branches_out_where_an_if_returns_the_condition() -> None:
    chosen = [branch(positive(source, "b"), ["b"]) for source in ("x", "n")]
    for graph in chosen:
        graph.output[0].type.tensor_type.elem_type = BOOL
    nodes = [
        *positive("x", "c"),
        helper.make_node("Neg", ["x"], ["n"]),
        choose("c", ["d"], *chosen),
        choose("d", ["y"], unary("Tanh", "x", "t"), unary("Sigmoid", "x", "e")),
    ]
    module, _ = compile_plan(nodes, {"y": FLOAT})
    assert profiled(module, positive_x()) == set()
    assert profiled(module, -positive_x()) == set()


def test_explain_counts_calls_in_branches() -> None:
    nodes = [
        *positive("x", "c"),
        choose("c", ["r"], unary("Tanh", "x", "t"), unary("Sigmoid", "x", "e")),
        helper.make_node("Softmax", ["r"], ["y"]),
    ]
    module, _ = compile_plan(nodes, {"y": FLOAT})
    assert "4 kernels in 4 calls (2 in branches, of which a run takes some)" in module.explain()


@pytest.mark.parametrize(
    ("first", "second", "meets"),
    [
        (LiveRange(0, 4, ()), LiveRange(4, 6, ()), True),
        (LiveRange(0, 3, ()), LiveRange(4, 6, ()), False),
        (LiveRange(2, 9, ((1, True),)), LiveRange(5, 9, ((1, False),)), False),
        (LiveRange(2, 9, ((1, True),)), LiveRange(5, 9, ((3, False),)), True),
        (LiveRange(2, 9, ((1, True), (2, True))), LiveRange(5, 9, ((1, True), (2, False))), False),
        (LiveRange(2, 9, ((1, True), (2, True))), LiveRange(5, 9, ((1, True),)), True),
    ],
)
def test_values_meet_unless_time_or_an_if_keeps_them_apart(first: LiveRange, second: LiveRange, meets: bool) -> None:
    assert first.meets(second) is meets
    assert second.meets(first) is meets
