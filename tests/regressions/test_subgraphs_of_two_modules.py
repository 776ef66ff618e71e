"""A subgraph of a library that two modules have: the second's took the place of the first's, which failed when the
second was dropped."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import fusion
from backends.subgraphs import library_of, published
from tests.module.small_models import mlp, mlp_numpy

X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def compiled(threads: int) -> fusion.CompiledModule:
    return fusion.compile(mlp(), backends=["onnxruntime", "cpu"], threads=threads, cache=False)


def keys(module: fusion.CompiledModule) -> list[str]:
    return [key for key in module._fixed.subgraphs if library_of(key)]


def test_one_outlives_the_other(tmp_path: Path) -> None:
    module = compiled(2)
    module.save(tmp_path / "saved.fusion")
    loaded = fusion.load(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(loaded(X)[0], module(X)[0])
    del loaded
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-5, atol=1e-6)


def test_threads_are_those_of_the_module() -> None:
    one, two = compiled(1), compiled(2)
    assert published(*keys(one)) is not published(*keys(two))
