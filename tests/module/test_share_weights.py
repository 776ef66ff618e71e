"""Forms of one model hold equal weights once, in memory and in a saved file."""

from __future__ import annotations

import gc
from pathlib import Path

import numpy as np
import pytest

import fusion
from fusion.module import share_weights
from fusion.module.archive import Archive
from fusion.module.specialization import Specialization
from fusion.tensors import aligned_copy, as_numpy, byte_view, numpy_dtype
from tests.module import small_models

SHAPES = (1, 3, 5)


def heavy() -> fusion.CompiledModule:
    """Return y[n, 512] = relu(x[n, 512] @ first) @ second of 1 MiB each, with forms for three n."""
    weights = [np.random.default_rng(seed).standard_normal((512, 512)).astype(np.float32) for seed in (0, 1)]
    model = small_models.mlp("n")
    for tensor, array in zip(model.graph.initializer, weights, strict=True):
        tensor.CopyFrom(small_models.numpy_helper.from_array(array, tensor.name))
    for value in (model.graph.input[0], model.graph.output[0]):
        value.type.tensor_type.shape.dim[1].dim_value = 512
    module = fusion.compile(model, wait=True, dynamic=False)
    for count in SHAPES:
        module(rows(count))
    return module


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 512)).astype(np.float32)


def held(forms: tuple[Specialization, ...]) -> int:
    """Return the bytes in which the weights of `forms` lie."""
    weights = [byte_view(weight) for form in forms if form.code is not None for weight in form.code.weights]
    return sum({data.ctypes.data: data.nbytes for data in weights}.values())


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    return heavy()


def test_forms_hold_the_weights_of_one(module: fusion.CompiledModule) -> None:
    assert len(module.specializations) == len(SHAPES)
    alone = held(module.specializations[:1])
    assert alone >= 2 * 512 * 512 * 4
    # Packed differently for one row than for several, perhaps, and equally for the others.
    assert held(module.specializations[1:]) == alone
    assert held(module.specializations) <= 2 * alone


def test_a_saved_file_has_them_once(module: fusion.CompiledModule, tmp_path: Path) -> None:
    path = tmp_path / "heavy.fusion"
    module.save(path)
    stored = len(Archive(path).read("weights.safetensors"))
    assert stored < held(module.specializations) + 4096
    loaded = fusion.load(path)
    for count in SHAPES:
        np.testing.assert_array_equal(loaded(rows(count))[0], module(rows(count))[0])
    loaded.save(tmp_path / "again.fusion")
    assert len(Archive(tmp_path / "again.fusion").read("weights.safetensors")) == stored


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "bool"])
def test_equal_weights_are_one_and_others_are_not(dtype: str) -> None:
    array = (np.arange(9000).reshape(90, 100) % 2).astype(numpy_dtype(dtype))
    other = array.copy()
    other[45, 51] = 1 - other[45, 51]  # in none of the bytes that are hashed
    first, second, third = share_weights.share_weights(tuple(map(aligned_copy, (array, array, other))))
    assert byte_view(first).ctypes.data == byte_view(second).ctypes.data != byte_view(third).ctypes.data
    for tensor, expected in ((first, array), (second, array), (third, other)):
        np.testing.assert_array_equal(as_numpy(tensor), expected)
        assert str(tensor.dtype) == dtype


def test_weights_that_nobody_uses_are_freed() -> None:
    gc.collect()
    before = len(share_weights._known)
    kept = share_weights.share_weights((aligned_copy(np.full((64, 64), 7.25, np.float32)),))
    assert len(share_weights._known) == before + 1
    del kept
    assert len(share_weights._known) == before
