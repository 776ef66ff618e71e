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
from fusion.placing import choose
from fusion.placing.choose import ChoosePlaces
from fusion.placing.worker import agrees
from tests.backends.importable import importable
from tests.module.small_models import FLOAT, model
from tuning import measuring_session

SIZE = 384
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
SOURCE = """
import os, pickle, time
import numpy as np

class Remembers:
    version = os.environ["REMEMBERS"]

    def why_not_taken(self, call):
        taken = ("relax.matmul", "relax.cumsum") if self.version == "is mixed" else ("relax.matmul",)
        return "" if call.op.name in taken else "it is no matmul"

    def export(self, function):
        steps = []
        for binding in function.body.blocks[0].bindings:
            if hasattr(binding.value, "op"):
                weights = [a.value.numpy() for a in binding.value.args if hasattr(getattr(a, "value", None), "numpy")]
                steps.append((binding.value.op.name, weights[0] if "matmul" in binding.value.op.name else None))
        return pickle.dumps(steps)

    def open(self, data, threads):
        if self.version == "crashes while opening":
            os._exit(1)
        steps, known = pickle.loads(data), []

        def compute(x):
            for name, weight in steps:
                x = np.cumsum(x, 1) if weight is None else x @ weight
            return x

        def run(arrays):
            if self.version == "crashes":
                os._exit(1)
            if self.version == "raises":
                raise RuntimeError("out of order")
            if self.version == "hangs":
                time.sleep(60)
            if self.version == "sleeps" or any(weight is None for _, weight in steps):
                time.sleep(0.02)
            if not known or not np.array_equal(known[0], arrays[0]):
                known[:] = [arrays[0].copy(), compute(arrays[0])]
            return [np.zeros_like(known[1]) if self.version == "is wrong" else known[1]]

        return run

LIBRARY = Remembers()
"""


@pytest.fixture
def version(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install the library, of which the version says what it does; little time is taken for measurements."""
    monkeypatch.setattr(measuring, "_POINT_SECONDS", 0.1)
    monkeypatch.setattr(choose, "_SEARCH_SECONDS", 1.0)
    monkeypatch.setattr(choose, "_SECONDS", 2.0)
    monkeypatch.setattr(measuring_session, "_PATIENCE_S", 8.0 if request.param == "hangs" else 300.0)
    monkeypatch.setenv("REMEMBERS", request.param)
    (tmp_path / "remembers.py").write_text(SOURCE)
    info = tmp_path / "remembers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remembers\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[fusion.backends]\nremembers = remembers:LIBRARY\n")
    with importable(tmp_path, "remembers", monkeypatch):
        yield request.param
    sys.modules.pop("remembers", None)


def compiled(database: Path, *, sums: bool = False, effort: str = "balanced") -> fusion.CompiledModule:
    """Return y = relu(x @ w), where the library may have the product, or the sums along each row of x @ w."""
    last = helper.make_node("CumSum", ["a", "axis"], ["y"]) if sums else helper.make_node("Relu", ["a"], ["y"])
    nodes, weights = [helper.make_node("MatMul", ["x", "w"], ["a"]), last], {"w": W}
    if sums:
        weights["axis"] = np.array(1)
    proto = model(nodes, [("x", FLOAT, [SIZE, SIZE])], [("y", FLOAT, [SIZE, SIZE])], weights)
    backends = ["cpu", "remembers", "onnxruntime"]
    return fusion.compile(proto, backends=backends, effort=effort, threads=1, cache=False, database=database)


@pytest.mark.parametrize(
    ("version", "wins"),
    [
        ("wins", True),
        ("sleeps", False),
        ("is wrong", False),
        ("raises", False),
        ("crashes", False),
        ("hangs", False),
        ("crashes while opening", False),
    ],
    indirect=["version"],
)
def test_measured_choice(version: str, wins: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = compiled(tmp_path / "records")
    report = module.explain()
    assert ("remembers runs 1 of 2 operators" in report) == wins, report
    told = {"wins": "with regions on remembers the model takes", "sleeps": "no clear gain"}
    assert told.get(version, "remembers runs nothing") in report
    np.testing.assert_allclose(module(X)[0], np.maximum(X @ W, 0), rtol=1e-3, atol=1e-3)

    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    again = compiled(tmp_path / "records")
    assert ("remembers runs 1 of 2 operators" in again.explain()) == wins


@pytest.mark.parametrize("version", ["is mixed"], indirect=True)
def test_what_is_slow_elsewhere_stays(version: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is faster at the product and slower at the sums, so that all of its regions are slower."""
    module = compiled(tmp_path / "records", sums=True)
    placement = module.placement
    assert [(part.backend, part.operators) for part in placement.parts] == [
        ("remembers", ("matmul",)), ("cpu", ("cumsum",)),
    ], module.explain()  # fmt: skip
    assert placement.seconds is not None
    assert placement.all_cpu_seconds is not None
    assert placement.seconds < placement.all_cpu_seconds
    assert placement.parts[0].runner_up == "cpu"
    np.testing.assert_allclose(module(X)[0], np.cumsum(X @ W, 1), rtol=1e-3, atol=1e-2)
    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    assert compiled(tmp_path / "records", sums=True).placement == placement
    assert compiled(tmp_path / "records", sums=True, effort="fast").placement == placement
    assert compiled(tmp_path / "none", sums=True, effort="fast").placement.backends == ("cpu",)


def refuse(*_: object) -> None:
    raise AssertionError("it measures again")


def test_a_placement_is_one_of_a_precision() -> None:
    def structure(precision: str) -> str:
        libraries = {"remembers": SimpleNamespace(version="1")}
        ctx: Any = SimpleNamespace(precision=precision, graph_libraries=libraries)
        imported: Any = SimpleNamespace(mod=SimpleNamespace(script=lambda **_: "the model"), branches={}, inputs=())
        return ChoosePlaces(imported, ctx, make)._tasks(knowledge)["remembers"].structure

    make: Any = None
    knowledge: Any = SimpleNamespace(environment=None)
    assert structure("fp32") == structure("fp32") != structure("bf16")


def test_results_agree_within_a_share_of_the_largest() -> None:
    ours = np.array([1.0, -8.0, np.inf], dtype=np.float32)
    assert agrees(ours, ours + np.float32(0.007), 1e-3)
    assert not agrees(ours, ours + np.float32(0.009), 1e-3)
    assert agrees(ours.astype(bfloat16), (ours + np.float32(0.1)).astype(bfloat16), 3e-2)
    assert not agrees(np.array([1, 2]), np.array([1, 3]), 1.0)
