"""Dimensions that have more than 4,096 in the first call, as the samples of a recording."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import fusion
from fusion.symbolic.open_dims import OpenDims

KERNEL = np.random.default_rng(0).standard_normal((4, 1, 3)).astype(np.float32)


def smoothed() -> onnx.ModelProto:
    """Return a model of recordings: a window over the samples of each."""
    nodes = [make_node("Conv", ["x", "kernel"], ["seen"], pads=[1, 1]), make_node("Relu", ["seen"], ["y"])]
    of_input = make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 1, "samples"])
    of_output = make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 4, "samples"])
    graph = make_graph(nodes, "smoothed", [of_input], [of_output], [numpy_helper.from_array(KERNEL, "kernel")])
    return make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)


def check(module: fusion.CompiledModule, batch: int, samples: int) -> None:
    x = np.random.default_rng(samples).standard_normal((batch, 1, samples)).astype(np.float32)
    (found,) = module(x)
    padded = np.pad(x[:, 0].astype(np.float64), ((0, 0), (1, 1)))
    expected = sum(padded[:, None, tap : tap + samples] * KERNEL[None, :, 0, tap, None] for tap in range(3))
    np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-5, atol=1e-5)


def test_they_have_one_form_which_a_saved_file_and_the_cache_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The form that the cache has from a short first call is no answer to a long one."""
    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    bounds = ("samples 1 to 4096", "samples 1 to 65536", "samples 1 to 65536")
    for first, told in zip((300, 16_000, 9_000), bounds, strict=True):
        module = fusion.compile(smoothed(), wait=True, threads=1)
        check(module, 1, first)
        assert told in module.explain()
        assert [form.opened is not None for form in module.specializations] == [True]
    for size in ((1, 1), (3, 20_001), (2, 65_536)):
        check(module, *size)
    assert len(module.specializations) == 1
    module.save(tmp_path / "smoothed.fusion")
    check(fusion.load(tmp_path / "smoothed.fusion"), 2, 30_000)


def test_a_first_call_reaches_as_far_as_it_asks_for() -> None:
    dims = OpenDims(("x",), (("batch", 1, "samples"),))
    assert dims.reaching(None) == dims
    assert dims.reaching({"batch": 50_000, "samples": 4_096}) == dims
    assert dims.reaching({"batch": 1, "samples": 16_000}).taken("samples") == range(1, 65_537)
