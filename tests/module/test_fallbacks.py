"""Models of which a part, or all, runs on ONNX Runtime: run, explained, saved and loaded like any other."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.errors import InputError
from fusion.module.fallback_program import FallbackProgram
from tests.module import small_models
from tests.module.small_models import FLOAT


@pytest.fixture(scope="module")
def partly() -> fusion.CompiledModule:
    """x[2, 6] -> relu -> Det of its 2x2 blocks -> y[3], of which TVM has no determinant."""
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Reshape", ["r", "shape"], ["blocks"]),
        helper.make_node("Det", ["blocks"], ["d"]),
        helper.make_node("Neg", ["d"], ["y"]),
    ]
    shape = {"shape": np.array([3, 2, 2])}
    return fusion.compile(small_models.model(nodes, [("x", FLOAT, [2, 6])], [("y", FLOAT, [3])], shape))


@pytest.fixture(scope="module")
def wholly() -> fusion.CompiledModule:
    """Two texts in, the same in the other order out."""
    node = helper.make_node("Gather", ["x", "order"], ["y"])
    text = TensorProto.STRING
    return fusion.compile(
        small_models.model([node], [("x", text, [2])], [("y", text, [2])], {"order": np.array([1, 0])})
    )


def test_a_part_runs_elsewhere(partly: fusion.CompiledModule, tmp_path: Path) -> None:
    x = np.random.default_rng(0).standard_normal((2, 6)).astype(np.float32)
    expected = -np.linalg.det(np.maximum(x, 0).reshape(3, 2, 2))
    partly.save(tmp_path / "partly.fusion")
    for module in (partly, fusion.load(tmp_path / "partly.fusion")):
        np.testing.assert_allclose(module(x)[0], expected, rtol=1e-5, atol=1e-6)
        assert "on ONNX Runtime: 1 node in 1 subgraph" in module.explain()
        assert "Det" in module.explain()
        assert module.profile({"x": x}).kernels


def test_outputs_of_a_fallback_keep_their_values(partly: fusion.CompiledModule) -> None:
    (first,) = partly(np.ones((2, 6), np.float32))
    kept = first.copy()
    partly(np.arange(12, dtype=np.float32).reshape(2, 6))
    np.testing.assert_array_equal(first, kept)


def test_all_runs_elsewhere(wholly: fusion.CompiledModule, tmp_path: Path) -> None:
    assert isinstance(wholly.specializations[0].program, FallbackProgram)
    wholly.save(tmp_path / "wholly.fusion")
    for module in (wholly, fusion.load(tmp_path / "wholly.fusion")):
        assert list(module(np.array(["one", "two"]))[0]) == ["two", "one"]
        assert "the whole model runs on ONNX Runtime" in module.explain()
        assert not module.profile({"x": np.array(["one", "two"])}).kernels


@pytest.mark.parametrize("value", [np.array(["one"]), np.ones(2, np.float32), np.array([["a", "b"]])])
def test_wrong_arrays_are_refused(wholly: fusion.CompiledModule, value: np.ndarray) -> None:
    with pytest.raises(InputError, match="wrong"):
        wholly(value)
