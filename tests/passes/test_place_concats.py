"""Concatenations are written in place by what makes their parts: right everywhere, without a kernel where it pays."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import onnxruntime
import pytest
from onnx import GraphProto, NodeProto, TensorProto, helper

import fusion
from fusion import context
from fusion.model_graph import MAPPED
from tests.fuzz import large
from tests.fuzz.verdicts import judge
from tests.module.small_models import BOOL, FLOAT, INT64, Value, model

pytestmark = pytest.mark.unoptimised

Arrays = dict[str, np.ndarray]
_RNG = np.random.default_rng(7)


def node(kind: str, inputs: str, output: str, **attributes: object) -> NodeProto:
    return helper.make_node(kind, inputs.split(), [output], **attributes)


def weight(*shape: int) -> np.ndarray:
    return (_RNG.standard_normal(shape) / max(1, np.prod(shape[1:])) ** 0.5).astype(np.float32)


def compiled(
    nodes: list[NodeProto], inputs: list[Value], outputs: list[str], weights: Arrays, threads: int = 2
) -> fusion.CompiledModule:
    """Return the model, after its outputs were compared with those of ONNX Runtime in two runs on other inputs."""
    made = model(nodes, inputs, [(name, FLOAT, []) for name in outputs], weights)
    for output in made.graph.output:
        output.type.tensor_type.ClearField("shape")
    module = fusion.compile(made, threads=threads)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    for seed in (0, 1):
        given = {name: _random(shape, seed) for name, _, shape in inputs}
        found = module.run(given)
        for name, expected in zip(outputs, session.run(outputs, given), strict=True):
            np.testing.assert_allclose(found[name], expected, rtol=1e-4, atol=1e-5, err_msg=name)
    return module


def _random(shape: list[int | str], seed: int) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal([int(extent) for extent in shape]).astype(np.float32) * 3


def kernels(module: fusion.CompiledModule) -> list[str]:
    """Return the names of the kernels that a run calls, in order."""
    code = module.specializations[0].code
    assert code is not None
    return [call.kernel for call in code.plan.calls]


def moving(module: fusion.CompiledModule) -> list[str]:
    """Return those that only move parts of concatenations."""
    return [name for name in kernels(module) if name.startswith(("concat", "copy_part"))]


IMAGE: Value = ("x", FLOAT, [1, 24, 14, 14])

PRODUCERS: dict[str, Callable[[], tuple[list[NodeProto], Arrays]]] = {
    "pointwise": lambda: ([node("Conv", "x p_w p_b", "p_")], {"p_w": weight(40, 24, 1, 1), "p_b": weight(40)}),
    "conv2d": lambda: ([node("Conv", "x p_w", "p_", pads=[2] * 4)], {"p_w": weight(24, 24, 5, 5)}),
    "winograd": lambda: ([node("Conv", "x p_w", "p_", pads=[1] * 4)], {"p_w": weight(32, 24, 3, 3)}),
    "depthwise": lambda: ([node("Conv", "x p_w", "p_", pads=[1] * 4, group=24)], {"p_w": weight(24, 1, 3, 3)}),
    "grouped": lambda: ([node("Conv", "x p_w", "p_", pads=[1] * 4, group=3)], {"p_w": weight(48, 8, 3, 3)}),
    "max_pool": lambda: ([node("MaxPool", "x", "p_", kernel_shape=[3, 3], pads=[1] * 4)], {}),
    "average_pool": lambda: ([node("AveragePool", "x", "p_", kernel_shape=[3, 3], pads=[1] * 4)], {}),
    "pad": lambda: (
        [node("MaxPool", "x", "p_s", kernel_shape=[3, 3]), node("Pad", "p_s p_w", "p_")],
        {"p_w": np.array([0, 0, 1, 1, 0, 0, 1, 1])},
    ),
    "resize": lambda: (
        [node("MaxPool", "x", "p_s", kernel_shape=[2, 2], strides=[2, 2]), node("Resize", "p_s none p_w", "p_")],
        {"p_w": np.array([1, 1, 2, 2], np.float32), "none": np.zeros(0, np.float32)},
    ),
    "transposed": lambda: (
        [node("MaxPool", "x", "p_s", kernel_shape=[2, 2], strides=[2, 2]),
         node("ConvTranspose", "p_s p_w", "p_", strides=[2, 2])],
        {"p_w": weight(24, 20, 2, 2)},
    ),
    "stitched": lambda: ([node("Softmax", "x", "p_", axis=1)], {}),
}  # fmt: skip


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("producer", PRODUCERS)
def test_every_producer_writes_its_slice(producer: str, threads: int) -> None:
    """24 channels before and behind: a tail of a vector too long would be in a neighbour's slice."""
    nodes, weights = PRODUCERS[producer]()
    around = [
        node("Conv", "x a_w", "a_s", pads=[1] * 4, group=24), node("Sigmoid", "a_s", "a"),
        node("Conv", "x b_w", "b_s"), node("Tanh", "b_s", "b"),
    ]  # fmt: skip
    weights = {**weights, "a_w": weight(24, 1, 3, 3), "b_w": weight(24, 24, 1, 1)}
    nodes = [*around, *nodes, node("Relu", "p_", "p"), node("Concat", "a p b", "c", axis=1), node("Sin", "c", "y")]
    module = compiled(nodes, [IMAGE], ["y"], weights, threads)
    assert moving(module) == []
    assert module.specializations[0].notes == ()


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_matmuls_write_slices_of_any_axis(axis: int, threads: int) -> None:
    nodes = [
        node("MatMul", "x v", "a"), node("MatMul", "x w", "s"), node("Relu", "s", "b"),
        node("Concat", "a b", "c", axis=axis), node("Softmax", "c", "y", axis=-1),
    ]  # fmt: skip
    module = compiled(nodes, [("x", FLOAT, [2, 9, 24])], ["y"], {"v": weight(24, 40), "w": weight(24, 40)}, threads)
    assert moving(module) == []


def test_an_output_of_the_model_is_written_in_place() -> None:
    nodes = [node("MatMul", "x v", "a"), node("MatMul", "x w", "b"), node("Concat", "a b", "y", axis=1)]
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], {"v": weight(24, 40), "w": weight(24, 20)})
    assert moving(module) == []
    assert len(kernels(module)) == 2


def test_a_result_that_others_read_is_not_copied() -> None:
    """A pool takes the slice, a convolution a second copy, which the same kernel writes."""
    nodes = [
        node("Conv", "x v", "a", pads=[1] * 4), node("MaxPool", "a", "b", kernel_shape=[3, 3], pads=[1] * 4),
        node("Conv", "b w", "d", pads=[1] * 4), node("MaxPool", "b", "e", kernel_shape=[3, 3], pads=[1] * 4),
        node("Concat", "a b e", "y", axis=1), node("Relu", "d", "z"),
    ]  # fmt: skip
    weights = {"v": weight(32, 24, 3, 3), "w": weight(32, 32, 3, 3)}
    module = compiled(nodes, [IMAGE], ["y", "z"], weights)
    assert moving(module) == []


def test_a_part_that_is_an_output_too_is_written_twice() -> None:
    nodes = [node("MatMul", "x v", "a"), node("MatMul", "x w", "b"), node("Concat", "a b", "y", axis=1)]
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y", "a"], {"v": weight(24, 40), "w": weight(24, 20)})
    assert moving(module) == []


def test_parts_that_no_kernel_makes_are_copied() -> None:
    nodes = [
        node("MatMul", "x v", "a"), node("Concat", "x a", "y", axis=1), node("Concat", "k a", "z", axis=1),
    ]  # fmt: skip
    weights = {"v": weight(24, 4000), "k": weight(9, 16)}
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y", "z"], weights)
    assert moving(module) == ["copy_part", "copy_part1"]
    reasons = {edge.reason for edge in module.specializations[0].graph().kept}
    assert reasons <= {"no kernel makes it"}


def test_a_part_that_is_joined_twice_is_copied_once() -> None:
    nodes = [node("MatMul", "x v", "a"), node("Concat", "a a", "y", axis=1)]
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], {"v": weight(24, 4000)})
    assert moving(module) == ["copy_part"]


def test_a_reshaped_part_that_is_joined_twice() -> None:
    nodes = [
        node("MatMul", "x v", "a"), node("Reshape", "a s", "r"), node("Concat", "r r", "y", axis=1),
    ]  # fmt: skip
    weights = {"v": weight(24, 4000), "s": np.array([3, 3, 4000])}
    compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], weights)


@pytest.mark.parametrize("listed", [False, True])
@pytest.mark.parametrize("axis", [1, 2])
def test_what_grows_by_concatenation_is_one_tensor(listed: bool, axis: int) -> None:
    """As in DenseNet: every layer reads all before it, which are given joined already, or one by one."""
    nodes, weights = [node("Conv", "x w", "l0")], {"w": weight(24, 24, 1, 1)}
    last, layers = "l0", ["l0"]
    for layer in range(1, 4):
        wide = 24 * layer if axis == 1 else 24
        weights |= {f"s{layer}": weight(1, wide, 1, 1), f"w{layer}": weight(24, wide, 3, 3)}
        nodes += [
            node("Mul", f"{last} s{layer}", f"m{layer}"), node("Relu", f"m{layer}", f"r{layer}"),
            node("Conv", f"r{layer} w{layer}", f"l{layer}", pads=[1] * 4),
        ]  # fmt: skip
        joined = f"{' '.join(layers) if listed else last} l{layer}"
        layers.append(f"l{layer}")
        nodes.append(node("Concat", joined, f"c{layer}", axis=axis))
        last = f"c{layer}"
    nodes.append(node("Sigmoid", last, "y"))
    module = compiled(nodes, [IMAGE], ["y"], weights)
    assert moving(module) == []


def test_concatenations_of_concatenations() -> None:
    """The inner one is a slice of the outer one along another axis; its other reader takes it from there."""
    nodes = [
        node("MatMul", "x v", "a"), node("MatMul", "x w", "b"), node("Concat", "a b", "c", axis=2),
        node("Tanh", "c", "z"), node("MatMul", "x u", "d"), node("Relu", "d", "e"), node("Concat", "e c", "y", axis=1),
    ]  # fmt: skip
    weights = {"v": weight(24, 16), "w": weight(24, 32), "u": weight(24, 48)}
    module = compiled(nodes, [("x", FLOAT, [3, 7, 24])], ["y", "z"], weights)
    assert moving(module) == []


def test_reshaped_parts_are_written_in_place() -> None:
    nodes = [
        node("MatMul", "x v", "a"), node("Reshape", "a s", "r"),
        node("MatMul", "x w", "b"), node("Reshape", "b s", "t"),
        node("Concat", "r t", "c", axis=1), node("Sigmoid", "c", "y"),
    ]  # fmt: skip
    weights = {"v": weight(24, 32), "w": weight(24, 32), "s": np.array([3, 3, 32])}
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], weights)
    assert moving(module) == []


def test_narrow_parts_of_memory_bound_kernels_stay() -> None:
    """Rows of two elements in the joined tensor: the kernels write long rows instead, and one kernel interleaves."""
    nodes = [
        node("Sigmoid", "x", "a"), node("Tanh", "x", "b"), node("Concat", "a b", "c", axis=1), node("Relu", "c", "y"),
    ]  # fmt: skip
    module = compiled(nodes, [("x", FLOAT, [4096, 2])], ["y"], {})
    assert moving(module) == ["concatenate"]
    reasons = {edge.reason for edge in module.specializations[0].graph().kept}
    assert "its rows in the joined tensor have 8 bytes" in reasons


def test_parts_inside_and_outside_of_a_branch() -> None:
    """What a branch makes it writes in place; what it gets it copies."""

    def branch(kind: str) -> GraphProto:
        nodes = [node("MatMul", "x w", "b"), node(kind, "b", "t"), node("Concat", "t a", "r", axis=1)]
        return helper.make_graph(nodes, kind, [], [helper.make_tensor_value_info("r", FLOAT, [9, 80])])

    nodes = [
        node("MatMul", "x v", "a"), node("ReduceSum", "x", "s", keepdims=0), node("Greater", "s zero", "c"),
        node("If", "c", "y", then_branch=branch("Relu"), else_branch=branch("Tanh")),
    ]  # fmt: skip
    weights = {"v": weight(24, 40), "w": weight(24, 40), "zero": np.float32(0)}
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], weights)
    assert not any(name.startswith("concat") for name in kernels(module))


@pytest.mark.parametrize("kind", [INT64, BOOL, TensorProto.FLOAT16])
def test_other_types(kind: int) -> None:
    nodes = [
        node("Relu", "x", "r"), node("Cast", "r", "a", to=kind), node("Cast", "x", "b", to=kind),
        node("Transpose", "b", "t"), node("Concat", "a t", "c", axis=0), node("Cast", "c", "y", to=FLOAT),
    ]  # fmt: skip
    module = compiled(nodes, [("x", FLOAT, [128, 128])], ["y"], {})
    assert moving(module) == []


def test_every_operator_is_accounted_for() -> None:
    nodes = [
        node("MatMul", "x v", "a"), node("MatMul", "x w", "s"), node("Relu", "s", "b"),
        node("Concat", "a b", "c", axis=1), node("MatMul", "c u", "y"),
    ]  # fmt: skip
    weights = {"v": weight(24, 40), "w": weight(24, 24), "u": weight(64, 8)}
    module = compiled(nodes, [("x", FLOAT, [9, 24])], ["y"], weights)
    graph = module.specializations[0].graph()
    (concat,) = (operator for operator in graph.operators if operator.op == "concat")
    assert concat.how == MAPPED
    assert sorted(graph.calls[call].op for call in concat.calls) == sorted(kernels(module)[:2])
    last = graph.calls[-1]
    assert {read.source for read in last.reads} == set(concat.calls)
    assert all(operator.calls for operator in graph.operators)
    assert sorted(call.saved for call in graph.calls if call.kind == "kernel") == [0, 9 * 40 * 4 * 2, 9 * 24 * 4 * 4]
    assert not any("concat" in edge.consumer for edge in graph.kept)


@pytest.mark.parametrize("seed", range(12))
def test_random_graphs_of_concatenations(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everything is written in place that can be, however few bytes lie together."""
    compiler = type(context.resolve().compiler)
    costs = context.resolve().compiler.memory
    monkeypatch.setattr(compiler, "memory", replace(costs, run=1, anchored_run=1, call=1 << 30))
    monkeypatch.setattr(large, "_STEPS", (*large._STEPS, *[large._concat] * 8))
    found = judge(large.make_case(seed), lambda stage: None)
    assert found.verdict == "same", found.detail
