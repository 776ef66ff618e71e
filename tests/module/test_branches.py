"""Models whose If is decided only when they run: both branches compiled, one of them run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper, numpy_helper

import fusion
from fusion.module.program import KernelProgram
from tests.frontends.models import branch, choose
from tests.module import small_models
from tests.module.small_models import BOOL, FLOAT


def check(model: onnx.ModelProto, module: fusion.CompiledModule, feeds: dict[str, np.ndarray]) -> None:
    """Compare with ONNX Runtime."""
    expected = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    for found, wanted in zip(module.run(feeds).values(), expected, strict=True):
        np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def feeds(**conditions: bool) -> dict[str, np.ndarray]:
    """Return x[8, 16] with the conditions."""
    x = np.random.default_rng().standard_normal((8, 16)).astype(np.float32)
    return {"x": x, **{name: np.array(value) for name, value in conditions.items()}}


@pytest.fixture(scope="module")
def network() -> onnx.ModelProto:
    """h = relu(x); p, q = tanh(h @ w1) @ w2, h if c else sigmoid(h @ w1), x; y = p @ w2 + q."""
    rng = np.random.default_rng(0)
    own = rng.standard_normal((16, 16)).astype(np.float32)
    shared = {name: rng.standard_normal((16, 16)).astype(np.float32) / 4 for name in ("w1", "w2")}
    then = [
        helper.make_node("MatMul", ["h", "w1"], ["t0"]),
        helper.make_node("Tanh", ["t0"], ["t1"]),
        helper.make_node("MatMul", ["t1", "own"], ["t2"]),
        helper.make_node("Identity", ["h"], ["t3"]),
    ]
    other = [
        helper.make_node("MatMul", ["h", "w1"], ["e0"]),
        helper.make_node("Sigmoid", ["e0"], ["e1"]),
        helper.make_node("Identity", ["x"], ["e2"]),
    ]
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        choose("c", ["p", "q"], branch(then, ["t2", "t3"], {"own": own}), branch(other, ["e1", "e2"])),
        helper.make_node("MatMul", ["p", "w2"], ["m"]),
        helper.make_node("Add", ["m", "q"], ["y"]),
    ]
    return small_models.model(nodes, [("c", BOOL, []), ("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 16])], shared)


def test_the_branch_that_the_condition_names_runs(network: onnx.ModelProto, tmp_path: Path) -> None:
    compiled = fusion.compile(network, strict=True)
    compiled.save(tmp_path / "network.fusion")
    for module in (compiled, fusion.load(tmp_path / "network.fusion")):
        for value in (True, False, True):
            check(network, module, feeds(c=value))


def chain(prefix: str) -> list[onnx.NodeProto]:
    """Return softmax(softmax(h @ wide) @ square) @ {prefix}_own, five kernels with [8, 64] between them, as the softmax
    is over columns."""
    return [
        helper.make_node("MatMul", ["h", "wide"], [f"{prefix}0"]),
        helper.make_node("Softmax", [f"{prefix}0"], [f"{prefix}1"], axis=0),
        helper.make_node("MatMul", [f"{prefix}1", "square"], [f"{prefix}2"]),
        helper.make_node("Softmax", [f"{prefix}2"], [f"{prefix}3"], axis=0),
        helper.make_node("MatMul", [f"{prefix}3", f"{prefix}_own"], [f"{prefix}4"]),
    ]


def planned(other: onnx.GraphProto) -> KernelProgram:
    """Return the program of h = relu(x); y = tanh(r), r the chain of h if c, else what `other` computes."""
    rng = np.random.default_rng(0)
    shapes = {"wide": (16, 64), "square": (64, 64)}
    shared = {name: rng.standard_normal(shape).astype(np.float32) / 8 for name, shape in shapes.items()}
    own = rng.standard_normal((64, 16)).astype(np.float32) / 8
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        choose("c", ["r"], branch(chain("t"), ["t4"], {"t_own": own}), other),
        helper.make_node("Tanh", ["r"], ["y"]),
    ]
    model = small_models.model(nodes, [("c", BOOL, []), ("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 16])], shared)
    module = fusion.compile(model, strict=True)
    for value in (True, False):
        check(model, module, feeds(c=value))
    program = module.specializations[0].program
    assert isinstance(program, KernelProgram)
    return program


def test_branches_share_memory_kernels_and_weights() -> None:
    own = np.random.default_rng(1).standard_normal((64, 16)).astype(np.float32) / 8
    long = planned(branch(chain("e"), ["e4"], {"e_own": own}))
    short = planned(branch([helper.make_node("Sigmoid", ["h"], ["e4"])], ["e4"]))
    assert sum(long.plan.storages) >= 2 * 8 * 64 * 4
    # The chain in the other branch needs what the first one has left.
    assert long.plan.storages == short.plan.storages
    calls = [call for call in long.plan.calls if call.conditions]
    then, other = ([call for call in calls if call.conditions[0].value is value] for value in (True, False))
    assert len(then) == 5
    assert [call.kernel for call in then] == [call.kernel for call in other]
    # wide and square once, and an own matrix each.
    assert len(long.weights) == 4


def test_profile_counts_the_branch_that_was_taken(network: onnx.ModelProto) -> None:
    module = fusion.compile(network)
    kernels = {value: {kernel.kernel for kernel in module.profile(feeds(c=value)).kernels} for value in (True, False)}
    assert any("tanh" in name for name in kernels[True])
    assert not any("tanh" in name for name in kernels[False])
    assert any("sigmoid" in name for name in kernels[False])


def test_branches_nest() -> None:
    inner = choose(
        "d",
        ["i"],
        branch([helper.make_node("Exp", ["x"], ["a"])], ["a"]),
        branch([helper.make_node("Add", ["h", "x"], ["b"])], ["b"]),
    )
    then = branch([inner, helper.make_node("Neg", ["i"], ["t"])], ["t"])
    other = branch([helper.make_node("Mul", ["h", "h"], ["e"])], ["e"])
    nodes = [helper.make_node("Abs", ["x"], ["h"]), choose("c", ["y"], then, other)]
    model = small_models.model(
        nodes, [("c", BOOL, []), ("d", BOOL, []), ("x", FLOAT, [8, 16])], [("y", FLOAT, [8, 16])]
    )
    module = fusion.compile(model, strict=True)
    for c in (True, False):
        for d in (True, False):
            check(model, module, feeds(c=c, d=d))


def test_a_branch_may_read_the_condition_of_its_if() -> None:
    """cast(c) is a number in either branch, and an If on c inside them is one of its own branches."""
    inner = choose(
        "c",
        ["i"],
        branch([helper.make_node("Exp", ["x"], ["a"])], ["a"]),
        branch([helper.make_node("Neg", ["x"], ["b"])], ["b"]),
    )
    cast = [helper.make_node("Cast", ["c"], ["f"], to=FLOAT), helper.make_node("Add", ["i", "f"], ["r"])]
    both = branch([inner, *cast], ["r"])
    for shape in ([], [1]):
        model = small_models.model(
            [choose("c", ["y"], both, both)],
            [("c", BOOL, shape), ("x", FLOAT, [8, 16])],
            [("y", FLOAT, [8, 16])],
        )
        module = fusion.compile(model, strict=True)
        for value in (True, False):
            check(model, module, {**feeds(), "c": np.full(shape, value)})
        program = module.specializations[0].program
        assert isinstance(program, KernelProgram)
        # One kernel a branch: nothing of the inner If is left.
        assert [len(call.conditions) for call in program.plan.calls if call.conditions] == [1, 1]


def test_a_branch_may_compute_nothing() -> None:
    """One branch returns a constant, the other a value of the graph around it."""
    fixed = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    constant = branch([helper.make_node("Constant", [], ["k"], value=numpy_helper.from_array(fixed))], ["k"])
    outer = branch([helper.make_node("Identity", ["h"], ["i"])], ["i"])
    model = small_models.model(
        [helper.make_node("Neg", ["x"], ["h"]), choose("c", ["y"], outer, constant)],
        [("c", BOOL, []), ("x", FLOAT, [8, 16])],
        [("y", FLOAT, [8, 16])],
    )
    module = fusion.compile(model, strict=True)
    for value in (True, False):
        check(model, module, feeds(c=value))
        first = module.run(feeds(c=value))["y"]
        kept = first.copy()
        module.run(feeds(c=value))
        np.testing.assert_array_equal(first, kept)


def test_a_branch_may_run_partly_elsewhere() -> None:
    """TVM has no determinant."""
    then = [helper.make_node("Det", ["x"], ["t0"]), helper.make_node("Neg", ["t0"], ["t"])]
    other = [helper.make_node("ReduceSum", ["x", "axes"], ["e"], keepdims=0)]
    model = small_models.model(
        [choose("c", ["y"], branch(then, ["t"]), branch(other, ["e"]))],
        [("c", BOOL, []), ("x", FLOAT, [5, 3, 3])],
        [("y", FLOAT, [5])],
        {"axes": np.array([1, 2])},
    )
    module = fusion.compile(model)
    assert [node.op for node in module.specializations[0].fallbacks] == ["Det"]
    x = np.random.default_rng().standard_normal((5, 3, 3)).astype(np.float32)
    for value in (True, False):
        check(model, module, {"x": x, "c": np.array(value)})


def test_branches_of_different_shapes_run_elsewhere() -> None:
    then = branch([helper.make_node("Neg", ["x"], ["t"])], ["t"])
    other = branch([helper.make_node("Concat", ["x", "x"], ["e"], axis=0)], ["e"])
    model = small_models.model(
        [choose("c", ["y"], then, other)],
        [("c", BOOL, []), ("x", FLOAT, [8, 16])],
        [("y", FLOAT, ["n", 16])],
    )
    module = fusion.compile(model)
    assert "different or unknown shapes" in module.specializations[0].fallbacks[0].reason
    for value in (True, False):
        check(model, module, feeds(c=value))
