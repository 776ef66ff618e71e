"""A library of another package, found by its entry point, is taken where it is faster, and left out where it is not."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import helper

import fusion
from fusion import measuring
from fusion.placing.choose import ChoosePlaces
from fusion.placing.worker import agrees
from tests.backends.importable import importable
from tests.module.small_models import FLOAT, model

SIZE = 384
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
SOURCE = """
import io, os, time
import numpy as np

class Remembers:
    version = os.environ["REMEMBERS"]

    def why_not_taken(self, call):
        return "" if call.op.name == "relax.matmul" else "it is no matmul"

    def export(self, function):
        (weight,) = (a for a in function.body.blocks[0].bindings[0].value.args if hasattr(a, "value"))
        file = io.BytesIO()
        np.save(file, weight.value.numpy())
        return file.getvalue()

    def open(self, data, threads):
        weight, known = np.load(io.BytesIO(data)), []

        def run(arrays):
            if self.version == "crashes":
                os._exit(1)
            if self.version == "is wrong":
                return [np.zeros((arrays[0].shape[0], weight.shape[1]), np.float32)]
            if self.version == "sleeps":
                time.sleep(0.02)
            if not known or not np.array_equal(known[0], arrays[0]):
                known[:] = [arrays[0].copy(), arrays[0] @ weight]
            return [known[1]]

        return run

LIBRARY = Remembers()
"""


@pytest.fixture
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install the library, of which the version says what it does."""
    monkeypatch.setenv("REMEMBERS", request.param)
    (tmp_path / "remembers.py").write_text(SOURCE)
    info = tmp_path / "remembers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remembers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fusion.backends]\nremembers = remembers:LIBRARY\n")
    with importable(tmp_path, "remembers", monkeypatch):
        yield request.param
    sys.modules.pop("remembers", None)


def compiled(database: Path) -> fusion.CompiledModule:
    """Return y = relu(x @ w), where the library may have the product."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Relu", ["a"], ["y"])]
    proto = model(nodes, [("x", FLOAT, [SIZE, SIZE])], [("y", FLOAT, [SIZE, SIZE])], {"w": W})
    backends = ["cpu", "remembers", "onnxruntime"]
    return fusion.compile(proto, backends=backends, effort="balanced", threads=1, cache=False, database=database)


@pytest.mark.parametrize(
    ("version", "wins"),
    [("wins", True), ("sleeps", False), ("is wrong", False), ("crashes", False)],
    indirect=["version"],
)
def test_measured_choice(version: str, wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measuring, "_POINT_SECONDS", 0.1)  # not what is tested
    module = compiled(tmp_path / "records")
    report = module.explain()
    assert ("remembers runs 1 of 2 operators" in report) == wins, report
    told = {"wins": "with regions on remembers the model takes", "sleeps": "no clear gain"}
    assert told.get(version, "remembers runs nothing") in report
    np.testing.assert_allclose(module(X)[0], np.maximum(X @ W, 0), rtol=1e-3, atol=1e-3)

    def refuse(*_: object) -> None:
        raise AssertionError("it measures again")

    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    again = compiled(tmp_path / "records")
    assert ("remembers runs 1 of 2 operators" in again.explain()) == wins


def test_a_placement_is_one_of_a_precision() -> None:
    def structure(precision: str) -> str:
        libraries = {"remembers": SimpleNamespace(version="1")}
        ctx: Any = SimpleNamespace(precision=precision, graph_libraries=libraries)
        imported: Any = SimpleNamespace(mod=SimpleNamespace(script=lambda **_: "the model"), branches={}, inputs=())
        (task,) = ChoosePlaces(imported, ctx, make)._tasks(knowledge).values()
        return task.structure

    make: Any = None
    knowledge: Any = SimpleNamespace(environment=None)
    assert structure("fp32") == structure("fp32") != structure("bf16")


def test_results_agree_within_a_share_of_the_largest() -> None:
    ours = np.array([1.0, -8.0, np.inf], dtype=np.float32)
    assert agrees(ours, ours + np.float32(0.007), 1e-3)
    assert not agrees(ours, ours + np.float32(0.009), 1e-3)
    assert agrees(ours.astype(bfloat16), (ours + np.float32(0.1)).astype(bfloat16), 3e-2)
    assert not agrees(np.array([1, 2]), np.array([1, 3]), 1.0)
