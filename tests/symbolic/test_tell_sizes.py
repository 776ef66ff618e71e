"""A kernel is told a size that no tensor it takes has among its extents: by an input that calls pass beside."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx.helper import make_node

import fusion
from fusion.errors import ExecutionError
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.module.small_models import FLOAT, INT64, Value, model


def test_indices_are_checked_against_the_rows_of_the_call(tmp_path: Path) -> None:
    """Messages along the edges of a graph: how many nodes there are, the edges do not tell."""
    nodes = [
        make_node("Gather", ["nodes", "sources"], ["sent"], axis=0),
        make_node("Relu", ["sent"], ["messages"]),
        make_node("Concat", ["nodes", "nodes"], ["twice"], axis=0),
        make_node("Gather", ["twice", "targets"], ["received"], axis=0),
        make_node("Add", ["messages", "received"], ["y"]),
    ]
    inputs: list[Value] = [
        ("sources", INT64, ["edges"]), ("targets", INT64, ["edges"]), ("nodes", FLOAT, ["rows", 4]),
    ]  # fmt: skip
    proto = model(nodes, inputs, [("y", FLOAT, ["edges", 4])], {})
    module = fusion.compile(proto, wait=True, cache=False, threads=1)
    rng = np.random.default_rng(0)
    for edges, rows in ((3, 5), (1, 1), (40, 2), (7, 300)):
        given = {
            "sources": rng.integers(-rows, rows, edges), "targets": rng.integers(-2 * rows, 2 * rows, edges),
            "nodes": rng.standard_normal((rows, 4)).astype(np.float32),
        }  # fmt: skip
        (wanted,) = onnxruntime_runs(proto, given)
        np.testing.assert_array_equal(module.run(given)["y"], wanted)
    module.save(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion").run(given)["y"], wanted)
    for name, beyond in (("sources", 300), ("targets", 600), ("sources", -301)):
        with pytest.raises(ExecutionError, match=str(beyond)):
            module.run({**given, name: np.full(7, beyond)})
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
