"""Arrays in, arrays out: by name and by position, from any library, without sharing what must not be shared."""

from __future__ import annotations

import os
import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import tvm
from onnx import helper

import fusion
from fusion.tensors import allocate_tensor, as_numpy
from tests.module import small_models
from tests.module.small_models import FLOAT, mlp_numpy


def batch(seed: int = 0, rows: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal((rows, 8)).astype(np.float32)


def test_run_by_name_and_by_position_agree(mlp: fusion.CompiledModule) -> None:
    x = batch()
    by_name, (by_position,) = mlp.run({"x": x}), mlp(x)
    assert list(by_name) == ["y"]
    np.testing.assert_array_equal(by_name["y"], by_position)
    np.testing.assert_allclose(by_position, mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_the_signature_is_known(mlp: fusion.CompiledModule) -> None:
    assert [(spec.name, spec.shape, spec.dtype) for spec in mlp.inputs] == [("x", (3, 8), "float32")]
    assert [(spec.name, spec.shape, spec.dtype) for spec in mlp.outputs] == [("y", (3, 4), "float32")]


def test_outputs_keep_their_values_over_later_runs(mlp: fusion.CompiledModule) -> None:
    (first,) = mlp(batch(0))
    kept = first.copy()
    for seed in range(1, 20):
        mlp(batch(seed))
    np.testing.assert_array_equal(first, kept)


def test_outputs_are_writable_and_outlive_the_module() -> None:
    module = fusion.compile(small_models.mlp())
    x = batch()
    (y,) = module(x)
    del module
    y += 1
    np.testing.assert_allclose(y, mlp_numpy(x) + 1, rtol=1e-5, atol=1e-5)


def test_an_output_that_is_an_input_is_a_copy() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["r"]), helper.make_node("Reshape", ["x", "shape"], ["flat"])]
    small = small_models.model(
        nodes, [("x", FLOAT, [64, 256])], [("r", FLOAT, [64, 256]), ("flat", FLOAT, [16384])], {"shape": np.array([-1])}
    )
    aligned = as_numpy(allocate_tensor((64, 256), "float32"))
    aligned[:] = 1
    _, flat = fusion.compile(small)(aligned)
    aligned[:] = 2
    assert (flat == 1).all()


def test_one_value_as_two_outputs_gives_two_arrays() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["a"]),
        helper.make_node("Reshape", ["a", "shape"], ["b"]),
    ]
    small = small_models.model(
        nodes, [("x", FLOAT, [2, 3])], [("a", FLOAT, [2, 3]), ("b", FLOAT, [6])], {"shape": np.array([-1])}
    )
    a, b = fusion.compile(small)(np.ones((2, 3), np.float32))
    a[:] = 5
    np.testing.assert_array_equal(b, np.ones(6, np.float32))


@pytest.mark.parametrize("offset", [0, 1, 4, 8])
def test_any_alignment_is_read_right(offset: int) -> None:
    small = small_models.model(
        [helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [128, 256])], [("y", FLOAT, [128, 256])]
    )
    storage = as_numpy(allocate_tensor((128 * 256 + 16,), "float32"))
    x = storage[offset : offset + 128 * 256].reshape(128, 256)
    x[:] = np.random.default_rng(offset).standard_normal(x.shape)
    (y,) = fusion.compile(small)(x)
    np.testing.assert_array_equal(y, np.maximum(x, 0))


def test_strided_read_only_and_reversed_arrays_are_read_right(mlp: fusion.CompiledModule) -> None:
    x = batch()
    wide = np.zeros((3, 16), np.float32)
    wide[:, ::2] = x
    locked = x.copy()
    locked.flags.writeable = False
    expected = mlp_numpy(x)
    for value in (wide[:, ::2], np.asfortranarray(x), x[::-1].copy()[::-1], locked):
        np.testing.assert_allclose(mlp(value)[0], expected, rtol=1e-5, atol=1e-5)


def test_arrays_of_other_libraries_go_in(mlp: fusion.CompiledModule) -> None:
    torch = pytest.importorskip("torch")
    x = batch()
    for value in (torch.from_numpy(x), tvm.runtime.tensor(x)):
        np.testing.assert_allclose(mlp(value)[0], mlp_numpy(x), rtol=1e-5, atol=1e-5)


def test_the_sign_that_torch_keeps_in_a_bit_is_read(mlp: fusion.CompiledModule) -> None:
    """The imaginary part of a conjugate is no copy, and DLPack has no such bit: numbers came without their signs."""
    torch = pytest.importorskip("torch")
    x = batch()
    value = torch.complex(torch.from_numpy(x), torch.from_numpy(x)).conj().imag
    assert value.is_neg()
    np.testing.assert_allclose(mlp(value)[0], mlp_numpy(-x), rtol=1e-5, atol=1e-5)


def test_several_outputs_keep_their_order(two_inputs: fusion.CompiledModule) -> None:
    a, b = np.full((2, 3), 3, np.float32), np.full((2, 3), 4, np.float32)
    outputs = two_inputs.run({"b": b, "a": a})
    assert list(outputs) == ["sum", "product"]
    assert (outputs["sum"] == 7).all()
    assert (outputs["product"] == 12).all()


def test_many_threads_share_a_module(mlp: fusion.CompiledModule) -> None:
    def run(seed: int) -> bool:
        x = batch(seed)
        return all(np.allclose(mlp(x)[0], mlp_numpy(x), rtol=1e-5, atol=1e-5) for _ in range(50))

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(run, range(16)))


@pytest.mark.skipif(not hasattr(os, "sched_getaffinity"), reason="this system has no affinity")
def test_running_leaves_the_affinity_of_the_caller_alone() -> None:
    before = os.sched_getaffinity(0)
    seen: list[set[int]] = []

    def compile_and_run() -> None:
        fusion.compile(small_models.mlp(), threads=1)(batch())
        seen.append(os.sched_getaffinity(0))

    thread = threading.Thread(target=compile_and_run)
    thread.start()
    thread.join()
    assert seen == [before]
    assert os.sched_getaffinity(0) == before
