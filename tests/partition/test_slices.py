"""PrimFuncs that write and read slices of larger tensors: what they compute, and what the templates refuse of them."""

from __future__ import annotations

import numpy as np
import pytest
import tvm
from tvm import te, tirx

from backends.tensorir.stages import read_stages
from fusion.declined import Declined
from partition.slices import Slice, copy_function, hide_outputs, read_slice, with_parameters, write_slice


def doubled(*shape: int) -> tirx.PrimFunc:
    """Return out = 2 x."""
    x = te.placeholder([tirx.const(extent, "int64") for extent in shape], "float32", "x")
    return te.create_prim_func([x, te.compute(x.shape, lambda *at: x(*at) * 2.0, "out")])


def run(func: tirx.PrimFunc, *arrays: np.ndarray) -> list[np.ndarray]:
    tensors = [tvm.runtime.tensor(array) for array in arrays]
    tvm.compile(tvm.IRModule({"main": func.with_attr("global_symbol", "main")}), "llvm")["main"](*tensors)
    return [tensor.numpy() for tensor in tensors]


def numbers(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal(shape).astype(np.float32)


def test_only_the_slice_is_written() -> None:
    func = doubled(3, 4)
    func = hide_outputs(write_slice(func, func.params[1], (3, 4), Slice((5, 9), (2, 5))), [func.params[1]])
    x, joined = numbers(3, 4), np.full((5, 9), 7, np.float32)
    _, found = run(func, x, joined)
    expected = joined.copy()
    expected[2:, 5:] = 2 * x
    np.testing.assert_array_equal(found, expected)
    (_, place) = read_stages(func)
    assert place.offsets == (2, 5)


def test_a_result_is_written_reshaped_and_to_its_own_memory() -> None:
    func = doubled(6, 2)
    func = write_slice(func, func.params[1], (3, 4), Slice((3, 5), (0, 1)))
    x = numbers(6, 2)
    _, own, joined = run(func, x, np.zeros((6, 2), np.float32), np.zeros((3, 5), np.float32))
    np.testing.assert_array_equal(own, 2 * x)
    np.testing.assert_array_equal(joined, np.pad((2 * x).reshape(3, 4), ((0, 0), (1, 0))))


def test_a_slice_is_read() -> None:
    func = read_slice(doubled(3, 4), 0, Slice((5, 9), (2, 5)))
    whole = numbers(5, 9)
    _, found = run(func, whole, np.zeros((3, 4), np.float32))
    np.testing.assert_array_equal(found, 2 * whole[2:, 5:])


def test_a_slice_is_copied() -> None:
    x = numbers(3, 4)
    _, found = run(copy_function((3, 4), "float32", Slice((3, 6), (0, 2))), x, np.zeros((3, 6), np.float32))
    np.testing.assert_array_equal(found, np.pad(x, ((0, 0), (2, 0))))


def test_regions_nest() -> None:
    assert Slice((3, 4), (1, 0)).inside(Slice((9, 9), (2, 5))) == Slice((9, 9), (3, 5))


def test_no_template_takes_a_slice_that_is_read_again() -> None:
    """Outside of the slice nothing is known of a buffer."""
    func = doubled(3, 4)
    func = write_slice(func, func.params[1], (3, 4), Slice((5, 9), (2, 5)))
    x, out, joined = func.params
    again = write_slice(func, joined, (5, 9), Slice((5, 10), (0, 0)))
    with pytest.raises(Declined, match="a part of a buffer"):
        read_stages(again)
    with pytest.raises(Declined, match="a part of a buffer"):
        read_stages(hide_outputs(with_parameters(func, [x, out, joined]), [joined]))
