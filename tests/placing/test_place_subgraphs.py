"""Subgraphs of ONNX Runtime move to our kernels, or a library's, where these are measured to be faster."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion
from fusion import measuring
from fusion.compiled_module import CompiledModule
from fusion.frontends import import_model
from fusion.placing import placement_bench
from fusion.placing.experiment import ModuleExperiment
from fusion.placing.subgraph_forms import form_of_subgraph, structure_of_subgraph, with_forms
from tests.frontends.narrow import networks, quantized
from tests.frontends.run import run
from tests.frontends.test_slow_operators import branching
from tuning.decide import CandidateTimes, Decision
from tuning.measuring_session import Results

pytestmark = pytest.mark.unoptimised


class Answers:
    """A session that measures nothing: by how much the second module of each question is faster is given, in order."""

    def __init__(self, ratios: list[float]) -> None:
        self.ratios = ratios

    def __call__(self, folder: Path, command: str) -> Answers:
        return self

    def __enter__(self) -> Answers:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, experiment: ModuleExperiment) -> Results:
        assert len(experiment.modules) == 2
        assert all(Path(module).exists() for module in experiment.modules)
        took = self.ratios.pop(0)
        times = (CandidateTimes(0, 1.0, 0.0, 1, 1.0), CandidateTimes(1, took, 0.0, 1, 1.0))
        return Results([Decision(int(took < 0.98), min(took, 1.0), 1.0, 2, times)])


@pytest.fixture(autouse=True)
def _few_points(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where modules are measured is asked here; points of kernels are not, which balanced compilations measure."""
    monkeypatch.setattr(measuring, "_POINT_SECONDS", 0.1)


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    ratios: list[float] = []
    monkeypatch.setattr(placement_bench, "MeasuringSession", Answers(ratios))
    return ratios


def compiled(model: onnx.ModelProto, folder: Path, **options: Any) -> CompiledModule:
    return fusion.compile(model, threads=1, database=folder / "records", **{"effort": "balanced", **options})


def subgraphs(module: CompiledModule) -> int:
    (form,) = module.specializations
    return len(form.subgraphs)


def values(model: onnx.ModelProto) -> list[np.ndarray]:
    draw = np.random.default_rng(0)
    shapes = [[dim.dim_value for dim in value.type.tensor_type.shape.dim] for value in model.graph.input]
    return [draw.standard_normal(shape).astype(np.float32) for shape in shapes]


@pytest.mark.parametrize("make", [networks.two_precisions, branching])
def test_forms_compute_what_subgraphs_do(make: Any) -> None:
    """In branches, too; what is inlined is none of the model's fallbacks."""
    model = make()
    imported = import_model(model)
    assert len(imported.subgraphs) == 2
    forms = {key: form for key, data in imported.subgraphs.items() if (form := form_of_subgraph(data))}
    some = with_forms(imported, dict([*forms.items()][:1]))
    every = with_forms(imported, forms)
    assert (len(some.subgraphs), len(every.subgraphs), every.fallbacks) == (1, 0, ())
    assert 0 < len(some.fallbacks) < len(imported.fallbacks)
    expected = fusion.compile(model, threads=1)(*values(model))
    if not imported.branches:
        for each in (some, every):
            for found, wanted in zip(run(each, *values(model)), expected, strict=True):
                np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4)


def test_several_results() -> None:
    nodes = [
        helper.make_node("Split", ["x"], ["a", "b"], axis=0, num_outputs=2),
        helper.make_node("MatMul", ["a", "b"], ["c"]),
        helper.make_node("Relu", ["a"], ["d"]),
    ]
    results = [helper.make_tensor_value_info(name, TensorProto.DOUBLE, [64, 64]) for name in "cda"]
    x = helper.make_tensor_value_info("x", TensorProto.DOUBLE, [128, 64])
    model = helper.make_model(helper.make_graph(nodes, "g", [x], results), opset_imports=[helper.make_opsetid("", 18)])
    data = model.SerializeToString()
    form = form_of_subgraph(data)
    assert form is not None
    given = np.random.default_rng(0).standard_normal((128, 64))
    c, d, a = run(form, given)
    np.testing.assert_allclose(c, given[:64] @ given[64:])
    np.testing.assert_array_equal(d, np.maximum(given[:64], 0))
    np.testing.assert_array_equal(a, given[:64])


def test_what_onnx_runtime_alone_has_is_asked_once(answers: list[float], tmp_path: Path) -> None:
    for _ in range(2):
        module = compiled(quantized.narrow_weights(bits=8), tmp_path)
        assert subgraphs(module) == 1
        assert "a subgraph stays on onnxruntime: nothing else compiles, runs and agrees with that" in module.explain()


def test_weights_are_not_of_the_structure() -> None:
    model, other = networks.dense("float64"), networks.dense("float64")
    large = max(other.graph.initializer, key=lambda tensor: tensor.ByteSize())
    large.raw_data = bytes(len(large.raw_data))
    assert structure_of_subgraph(model.SerializeToString()) == structure_of_subgraph(other.SerializeToString())
    small = networks.dense("float64", rows=7)
    assert structure_of_subgraph(model.SerializeToString()) != structure_of_subgraph(small.SerializeToString())


def test_the_faster_of_two_moves(answers: list[float], tmp_path: Path) -> None:
    """Of two subgraphs one is faster here, and so is the model with it; what is known is not measured again."""
    model = networks.two_precisions()
    plain = fusion.compile(model, threads=1)
    assert subgraphs(plain) == 2
    answers += [0.5, 2.0, 0.8]
    module = compiled(model, tmp_path)
    assert (subgraphs(module), answers) == (1, [])
    report = module.explain()
    assert "a subgraph takes 1000.000 ms on onnxruntime, and 500.000 ms on cpu: it is part of the graph" in report
    assert "a subgraph takes 1000.000 ms on onnxruntime, and 2000.000 ms on cpu: it stays there" in report
    (part,) = [part for part in module.placement.parts if part.backend == "onnxruntime"]
    assert (part.seconds, part.runner_up, part.runner_up_seconds) == (1.0, "cpu", 2.0)
    for options in ({}, {"effort": "fast"}):
        again = compiled(model, tmp_path, **options)
        assert subgraphs(again) == 1
        np.testing.assert_allclose(again(*values(model))[0], plain(*values(model))[0], rtol=1e-4, atol=1e-4)
    assert subgraphs(fusion.compile(model, threads=1, database=False)) == 2


def test_what_makes_the_model_no_faster_stays(answers: list[float], tmp_path: Path) -> None:
    answers += [0.5, 0.5, 1.0]
    module = compiled(networks.two_precisions(), tmp_path)
    assert (subgraphs(module), answers) == (2, [])


def test_a_model_that_is_one_subgraph(answers: list[float], tmp_path: Path) -> None:
    model = networks.dense("float64")
    answers += [2.0]
    module = compiled(model, tmp_path)
    assert str(module.placement).endswith("in 1 call (1000.000 ms)")
    assert module.placement.parts[0].runner_up == "cpu"
    answers += [0.5]
    moved = compiled(model, tmp_path / "other")
    assert (subgraphs(moved), subgraphs(module), answers) == (0, 1, [])
    given = np.random.default_rng(0).standard_normal(moved.inputs[0].extents)
    np.testing.assert_allclose(moved(given)[0], module(given)[0], rtol=1e-9)


def test_a_library_that_takes_nothing_is_not_measured(answers: list[float], tmp_path: Path) -> None:
    """OpenVINO takes no float64: our kernels would be timed under its name."""
    pytest.importorskip("openvino")
    answers += [2.0]  # of two modules
    module = compiled(networks.dense("float64"), tmp_path, backends=["cpu", "openvino", "onnxruntime"])
    assert (subgraphs(module), answers) == (1, [])
    assert module.placement.parts[0].runner_up == "cpu"


def test_strict_models_have_none(tmp_path: Path) -> None:
    module = compiled(networks.dense("float64", 1, width=16), tmp_path, backends=["cpu"])
    assert subgraphs(module) == 0
