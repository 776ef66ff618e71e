"""Collecting the operators of a model, each as a model of its own, and rating them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from backends.machine_limits import Level, MachineLimits
from bench import inputs
from bench.kernels.case import Case
from bench.kernels.collect import operators
from bench.kernels.graph import trace
from bench.kernels.measure import Measured
from bench.kernels.report import rate, text
from bench.kernels.single import extract
from bench.peers.engine import Kernels
from bench.result import ComparisonResult, EngineResult

MACHINE = MachineLimits(2, 100.0, (Level("L1", 64 << 10, 400.0), Level("L2", 2 << 20, 200.0), Level("memory", 0, 20.0)))


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Case]:
    """Two blocks of attention over x[1, 2, 8, 4] with a mask, a strided convolution of it, and a pool."""
    rng = np.random.default_rng(0)
    weights = {
        "w": rng.standard_normal((6, 2, 3, 3)).astype(np.float32),
        "b": rng.standard_normal(6).astype(np.float32),
        "mask": np.zeros((8, 8), np.float32),
        "scale": np.float32(0.5),
    }
    nodes = []
    for source, target in (("x", "a"), ("a", "b1")):
        nodes += [
            helper.make_node("Transpose", [source], [f"{target}t"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", [source, f"{target}t"], [f"{target}0"]),
            helper.make_node("Mul", [f"{target}0", "scale"], [f"{target}1"]),
            helper.make_node("Add", [f"{target}1", "mask"], [f"{target}2"]),
            helper.make_node("Softmax", [f"{target}2"], [f"{target}3"], axis=-1),
            helper.make_node("MatMul", [f"{target}3", source], [target]),
        ]
    nodes += [
        helper.make_node("Conv", ["b1", "w", "b"], ["c"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("GlobalAveragePool", ["c"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes,
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 2, 8, 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in weights.items()],
    )
    path = tmp_path_factory.mktemp("kernels") / "small.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    traced = trace(path, {"x": rng.standard_normal((1, 2, 8, 4)).astype(np.float32)})
    singles = [extract(traced, nodes, family, flops) for family, nodes, flops in operators(traced)]
    unique = {single.key: single.case({"small": 1}) for single in singles}
    assert len(singles) == 10
    return {case.name: case for case in unique.values()}


def test_every_shape_comes_once(cases: dict[str, Case]) -> None:
    assert set(cases) == {
        "attention 1x2x8x4 1x2x4x8 8x8",
        "matmul 1x2x8x4 1x2x4x8",
        "softmax 1x2x8x8",
        "matmul 1x2x8x8 1x2x8x4",
        "conv 1x2x8x4 6x2x3x3 stride 2x2",
        "pooling 1x6x4x2",
    }


def test_operations_and_bytes_are_counted(cases: dict[str, Case]) -> None:
    conv = cases["conv 1x2x8x4 6x2x3x3 stride 2x2"]
    assert conv.flops == 2 * (6 * 4 * 2) * (2 * 3 * 3)
    assert conv.bytes == 4 * (2 * 8 * 4 + 6 * 2 * 9 + 6 + 6 * 4 * 2)
    attention = cases["attention 1x2x8x4 1x2x4x8 8x8"]
    assert attention.flops == 2 * (2 * 2 * 8 * 8 * 4)
    assert cases["softmax 1x2x8x8"].flops == 0


def test_each_case_is_a_model_that_runs(cases: dict[str, Case]) -> None:
    for case in cases.values():
        onnx.checker.check_model(case.model)
        outputs = ort.InferenceSession(case.model.SerializeToString()).run(None, inputs.draw(case.inputs, seed=0))
        assert np.isfinite(outputs[0]).all()


def _chain(folder: Path, kinds: list[str], extra: list[NodeProto]) -> list[list[str]]:
    """Return what is found as attention where the operators `kinds` lie between x[8, 4] x[8, 4]^T and a matmul."""
    casts = {"Cast": {"to": TensorProto.FLOAT}, "CastHalf": {"to": TensorProto.FLOAT16}}
    nodes = [helper.make_node("Transpose", ["x"], ["xt"]), helper.make_node("MatMul", ["x", "xt"], ["t0"])]
    for number, kind in enumerate(kinds):
        source = [f"t{number}", "s"] if kind == "Mul" else [f"t{number}"]
        operator = "Cast" if kind in casts else kind
        nodes.append(helper.make_node(operator, source, [f"t{number + 1}"], **casts.get(kind, {})))
    nodes.append(helper.make_node("MatMul", [f"t{len(kinds)}", "x"], ["y"]))
    graph = helper.make_graph(
        [*nodes, *extra],
        "chain",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [8, 4])],
        [helper.make_empty_tensor_value_info("y")],
        [numpy_helper.from_array(np.float32(0.5), "s")],
    )
    path = folder / "chain.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    traced = trace(path, {"x": np.ones((8, 4), np.float32)})
    return [[node.op_type for node in nodes] for family, nodes, _ in operators(traced) if family == "attention"]


@pytest.mark.parametrize(
    "kinds", [["Softmax"], ["Mul", "Softmax", "Cast", "Cast"], ["Cast", "Mul", "Softmax", "Mul"]], ids="-".join
)
def test_attention_may_scale_and_cast_on_both_sides_of_the_softmax(tmp_path: Path, kinds: list[str]) -> None:
    assert _chain(tmp_path, kinds, []) == [["MatMul", *kinds, "MatMul"]]


def test_what_others_read_or_computes_otherwise_is_no_attention(tmp_path: Path) -> None:
    half_and_back = ["CastHalf", "Softmax", "Cast"]
    assert _chain(tmp_path, half_and_back, []) == [], "float16"
    assert _chain(tmp_path, ["Softmax", "Relu"], []) == []
    assert _chain(tmp_path, ["Softmax", "Cast"], [helper.make_node("Relu", ["t2"], ["seen"])]) == []
    assert _chain(tmp_path, ["Mul", "Softmax"], [helper.make_node("Relu", ["t1"], ["seen"])]) == []


def _measured(case: Case, ours_ms: float, kernels_ms: float, theirs_ms: float) -> Measured:
    engines = {"fusion": EngineResult([ours_ms] * 3), "onnxruntime": EngineResult([theirs_ms] * 3)}
    return Measured(case, ComparisonResult(case.name, {}, 2, engines), Kernels(1, kernels_ms / 1e3))


def test_rating_takes_the_level_that_holds_the_data() -> None:
    model = onnx.ModelProto()
    # 1 MB at 200 GB/s takes 5 us.
    moving = rate(_measured(Case("softmax a", "softmax", model, (), 0, 10**6, {"m": 1}), 0.01, 0.008, 0.02), MACHINE)
    assert (moving.bound, moving.share, moving.ratio) == ("L2", pytest.approx(0.625), pytest.approx(2))
    # 100 MFLOP at 100 GFLOP/s take 1 ms.
    working = rate(_measured(Case("matmul b", "matmul", model, (), 10**8, 10**6, {"m": 1}), 2.0, 2.0, 1.0), MACHINE)
    assert (working.bound, working.share, working.ratio) == ("compute", pytest.approx(0.5), pytest.approx(0.5))
    table = text([moving, working], MACHINE)
    assert "| all                | 2      | 1.00                  | 0.50   | 50%" in table
    assert "| softmax            | 1 " in table
    assert "MB   | fusion us | onnxruntime us | kernels | kernels us | ratio" in table
