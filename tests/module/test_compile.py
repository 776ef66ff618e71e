"""Compiling from several threads, and what a defect of a pass looks like from outside."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import fusion
from fusion import pipeline
from fusion.errors import InternalError
from tests.module import small_models


def test_threads_compile_at_the_same_time() -> None:
    models = [small_models.mlp(rows) for rows in (1, 2, 3, 4)]
    with ThreadPoolExecutor(4) as pool:
        modules = list(pool.map(fusion.compile, models))
    for rows, module in zip((1, 2, 3, 4), modules, strict=True):
        x = np.ones((rows, 8), np.float32)
        np.testing.assert_allclose(module(x)[0], small_models.mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_threads_meet_new_shapes_at_the_same_time() -> None:
    modules = [fusion.compile(small_models.mlp("rows"), wait=True) for _ in range(3)]
    x = np.ones((5, 8), np.float32)
    with ThreadPoolExecutor(3) as pool:
        results = list(pool.map(lambda module: module(x)[0], modules))
    for result in results:
        np.testing.assert_allclose(result, small_models.mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_a_failing_pass_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("undefined variable p")

    monkeypatch.setattr(pipeline, "lower", fail)
    with pytest.raises(InternalError, match="RuntimeError") as caught:
        fusion.compile(small_models.mlp(), strict=True)
    assert "undefined variable p" in str(caught.value)
