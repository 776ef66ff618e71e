"""The slow peers run what they can, and say in plain words what they cannot."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench import zoo
from bench.peers import compiles_ahead, engine, installed, names
from bench.peers.engine import AheadOfTime, Job, UnsupportedModelError
from bench.remote import EngineError, Worker
from bench.serve import answer
from bench.zoo.registry import RECIPES
from tests.bench.engine_here import EngineHere

DEADLINE_S = 120.0


@pytest.fixture
def reshaping(tmp_path: Path) -> Job:
    """Return relu(x) reshaped to a shape that the graph computes from its input's open dimension."""
    nodes = [
        helper.make_node("Relu", ["x"], ["h"]),
        helper.make_node("Shape", ["h"], ["all"]),
        helper.make_node("Gather", ["all", "zero"], ["first"]),
        helper.make_node("Concat", ["first", "rest"], ["shape"], axis=0),
        helper.make_node("Reshape", ["h", "shape"], ["y"]),
    ]
    constants = {"zero": np.array([0]), "rest": np.array([-1])}
    graph = helper.make_graph(
        nodes,
        "reshaping",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 2, 3])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 6])],
        [numpy_helper.from_array(value, name) for name, value in constants.items()],
    )
    path = tmp_path / "reshaping.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return Job(path, {"x": (4, 2, 3)}, threads=1)


@pytest.mark.parametrize("name", [name for name in names() if name != "torch" and installed(name)])
def test_a_shape_that_the_graph_computes(name: str, reshaping: Job, tmp_path: Path) -> None:
    assert not compiles_ahead(name)
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    with Worker(name, threads=1) as peer:
        peer.ask(DEADLINE_S, "load", reshaping, tmp_path)
        outputs = peer.ask(DEADLINE_S, "run", {"x": x})
    np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0).reshape(4, 6))


def test_fusion_runs_without_a_linker(reshaping: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.module.linker.find_linker", lambda triple="": None)
    ours = engine("fusion")
    assert isinstance(ours, AheadOfTime)
    assert not ours.build(reshaping, tmp_path)
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    outputs = ours.load(reshaping, tmp_path)({"x": x})
    np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0).reshape(4, 6))


def test_fusion_measures_where_the_job_says_so(reshaping: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def refuse(*_: Any, effort: str, **__: Any) -> None:
        asked.append(effort)
        raise InterruptedError

    monkeypatch.setattr("fusion.compile", refuse)
    ours = engine("fusion")
    assert isinstance(ours, AheadOfTime)
    for job in (reshaping, dataclasses.replace(reshaping, effort="balanced")):
        with pytest.raises(InterruptedError):
            ours.build(job, tmp_path)
    assert asked == ["fast", "balanced"]


@pytest.mark.skipif(not installed("torch"), reason="torch is not installed")
def test_torch_declines_a_model_that_is_no_torch_module(reshaping: Job, tmp_path: Path) -> None:
    with EngineHere("torch", threads=1) as peer, pytest.raises(EngineError) as caught:
        peer.ask(DEADLINE_S, "load", reshaping, tmp_path)
    assert str(caught.value) == "load: torch.compile takes torch modules, and this model exists only as ONNX"


@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch")
def test_torch_compiles_before_the_first_input(
    reshaping: Job, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    from torch._inductor import config

    class Module(torch.nn.Module):  # type: ignore[misc, name-defined]
        inputs, outputs = ("x",), ("y",)

        def forward(self, x: Any) -> tuple[Any]:
            return (torch.relu(x).flatten(1),)

    recipe = zoo.Recipe("reshaping", lambda path: None, reshaping.shapes, module=Module)
    monkeypatch.setitem(RECIPES, recipe.name, recipe)
    # A C++ compiler takes most of the time, for what makes a quick kernel, or many of them, quicker.
    with config.patch({"cpp.vec_isa_ok": False, "cpp_cache_precompile_headers": False}):
        run = engine("torch").load(dataclasses.replace(reshaping, zoo_name=recipe.name), tmp_path)
    x = np.random.default_rng(0).standard_normal((4, 2, 3)).astype(np.float32)
    with torch.compiler.set_stance("fail_on_recompile"):
        outputs = run({"x": x})
    np.testing.assert_array_equal(outputs["y"], np.maximum(x, 0).reshape(4, 6))


def test_an_error_of_many_lines_becomes_one_short_line() -> None:
    class Failing:
        def fail(self, error: Exception) -> None:
            raise error

    done, text = answer(Failing(), "fail", (ValueError("no such\n\n  tile" + " x" * 1000),))
    assert not done
    assert text.startswith("ValueError: no such tile x")
    assert len(text) <= 300
    assert answer(Failing(), "fail", (UnsupportedModelError("plain words"),)) == (False, "plain words")
