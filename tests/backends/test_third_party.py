"""The backend that the docs show, installed from a folder of its own."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from onnx import helper

import fusion
from backends import registry
from fusion import context
from fusion.errors import ExecutionError, NotInstalledError, OptionError
from tests.backends.importable import importable
from tests.module.small_models import FLOAT, model

PAGE = Path(__file__).parents[2] / "docs" / "backends.md"
X = np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)
BACKENDS = ["numpy", "cpu", "onnxruntime"]
pytestmark = pytest.mark.usefixtures("one_process_apart")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where pip has installed the package of the page."""
    source, installed = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    python, project = re.findall(r"```(?:python|toml)\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(python.splitlines()) < 60
    (source / "numpy_backend.py").write_text(python)
    (source / "pyproject.toml").write_text(project)
    options = ["--target", str(installed), "--no-deps", "--no-index", "--no-build-isolation", "--quiet"]
    subprocess.run([sys.executable, "-m", "pip", "install", *options, str(source)], check=True)
    return installed


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    with importable(folder, "numpy_backend", monkeypatch):
        yield


def network() -> object:
    """Return y = relu(softmax(x + x))."""
    nodes = [
        helper.make_node("Add", ["x", "x"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=1),
        helper.make_node("Relu", ["b"], ["y"]),
    ]
    return model(nodes, [("x", FLOAT, [4, 8])], [("y", FLOAT, [4, 8])], {})


@pytest.mark.usefixtures("installed")
def test_it_runs_what_it_takes(tmp_path: Path) -> None:
    assert context.resolve(backends=BACKENDS, cache=True).cache is None, "nobody knows the version of its code"
    module = fusion.compile(network(), backends=BACKENDS)
    assert "numpy.softmax runs nn.softmax" in module.explain()
    alone = fusion.compile(network())
    assert "numpy" not in alone.explain()
    np.testing.assert_allclose(module(X)[0], alone(X)[0], rtol=1e-5)
    module.save(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion")(X)[0], module(X)[0])


@pytest.mark.usefixtures("installed")
def test_with_a_version_it_stands_where_it_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(type(registry.library("numpy")), "version", "1.0", raising=False)
    module = fusion.compile(network(), backends=["numpy", "onnxruntime"])
    assert {part.operators: part.backend for part in module.placement.parts} == {
        ("add",): "onnxruntime",
        ("nn.softmax",): "numpy",
        ("nn.relu",): "onnxruntime",
    }
    np.testing.assert_allclose(module(X)[0], fusion.compile(network())(X)[0], rtol=1e-5)


def test_its_name_is_that_of_its_entry_point(
    installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(registry.library("numpy")), "name", "of another", raising=False)
    module = fusion.compile(network(), backends=BACKENDS)
    module.save(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion")(X)[0], module(X)[0])


def test_a_saved_module_says_what_it_lacks(installed: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fusion.compile(network(), backends=BACKENDS).save(tmp_path / "saved.fusion")
    monkeypatch.setattr(registry, "others", dict)
    registry.other.cache_clear()
    with pytest.raises(NotInstalledError, match="the backend 'numpy' is not installed"):
        fusion.load(tmp_path / "saved.fusion")


@pytest.mark.parametrize(
    ("results", "message"),
    [
        (lambda arrays: 1 / 0, "the backend 'numpy' failed"),
        (lambda arrays: [arrays[0][:2].copy()], "the backend 'numpy' returned another shape"),
        (lambda arrays: [arrays[0].astype(np.float64)], "the backend 'numpy' returned another shape, dtype"),
    ],
)
def test_what_it_does_wrong_is_an_error(
    results: object, message: str, installed: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(type(registry.library("numpy")), "open", lambda self, data, threads: results)
    module = fusion.compile(network(), backends=BACKENDS)
    with pytest.raises(ExecutionError, match=message):
        module(X)


def test_a_library_that_fails_takes_nothing(
    installed: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(type(registry.library("numpy")), "export", lambda self, function: function.weights)
    module = fusion.compile(network(), backends=BACKENDS)
    assert "the backend 'numpy' failed and takes nothing: AttributeError" in module.explain()
    assert "takes nothing of this model" in caplog.text
    np.testing.assert_allclose(module(X)[0], fusion.compile(network())(X)[0], rtol=1e-5)


def test_a_name_that_nobody_registers() -> None:
    with pytest.raises(OptionError, match="no backend has the name 'numpy'"):
        fusion.compile(network(), backends=["numpy", "cpu"])
