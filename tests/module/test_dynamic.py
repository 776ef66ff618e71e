"""Models with open dimensions that are compiled for each shape when it is first seen, or for the one named up front
(D11)."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.errors import InputError, SavedFileError, ShapeError
from fusion.module import specializations
from tests.module import small_models
from tests.module.small_models import mlp_numpy


@pytest.fixture
def module() -> fusion.CompiledModule:
    return fusion.compile(small_models.mlp("rows"), wait=True, dynamic=False)


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 8)).astype(np.float32)


def test_each_new_shape_is_compiled_once(module: fusion.CompiledModule) -> None:
    assert module.inputs[0].shape == (None, 8)
    for count in (1, 5, 1, 5, 2):
        np.testing.assert_allclose(module(rows(count))[0], mlp_numpy(rows(count)), rtol=1e-5, atol=1e-5)
    assert [form.inputs[0].shape for form in module.specializations] == [(1, 8), (5, 8), (2, 8)]


def test_shapes_fix_a_module_up_front() -> None:
    module = fusion.compile(small_models.mlp("rows"), shapes={"x": (4, 8)})
    assert module.inputs[0].shape == (4, 8)
    assert not module.dynamic
    with pytest.raises(InputError, match="wrong shape"):
        module(rows(5))


def test_only_the_last_forms_are_kept(module: fusion.CompiledModule, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(specializations, "MAX_SPECIALIZATIONS", 2)
    for count in (1, 2, 1, 3):
        module(rows(count))
    assert [form.inputs[0].shape for form in module.specializations] == [(1, 8), (3, 8)]


def test_threads_that_ask_for_one_new_shape_compile_it_once(module: fusion.CompiledModule) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: module(rows(6))[0], range(8)))
    assert len(module.specializations) == 1
    for result in results:
        np.testing.assert_array_equal(result, results[0])


def test_wrong_arrays_are_refused_before_anything_is_compiled(module: fusion.CompiledModule) -> None:
    wrong = (np.zeros((2, 9), np.float32), np.zeros((2, 8), np.float64), np.zeros(8, np.float32))
    for array, word in zip(wrong, ("shape", "dtype", "rank"), strict=True):
        with pytest.raises(InputError, match=f"wrong {word}"):
            module(array)
    assert not module.specializations


def test_a_saved_module_holds_the_shapes_seen(module: fusion.CompiledModule, tmp_path: Path) -> None:
    with pytest.raises(SavedFileError, match="not been compiled for any input shape"):
        module.save(tmp_path / "none.fusion")
    for count in (1, 3):
        module(rows(count))
    module.save(tmp_path / "two.fusion")
    loaded = fusion.load(tmp_path / "two.fusion")
    for count in (1, 3):
        np.testing.assert_array_equal(loaded(rows(count))[0], module(rows(count))[0])
    with pytest.raises(InputError, match=r"no compiled form for .* x=\[2, 8\]") as caught:
        loaded(rows(2))
    assert "x=[1, 8]; x=[3, 8]" in str(caught.value)


@pytest.mark.parametrize("shapes", [{"z": (4, 8)}, {"x": (4, 9)}, {"x": (4,)}, {"x": (-1, 8)}, {"x": ("n", 9)}])
def test_shapes_that_do_not_fit_are_refused(shapes: dict[str, tuple[int, ...]]) -> None:
    with pytest.raises(ShapeError):
        fusion.compile(small_models.mlp("rows"), shapes=shapes)
