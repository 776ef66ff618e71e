"""Scatters, running sums and the first elements in order, on the emulator, as NumPy and float64 have them."""

from __future__ import annotations

import math
from collections.abc import Callable

import ml_dtypes
import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import fusion
from tests.backends.cuda.emulator.emulate import WHY_NOT
from tests.backends.cuda.planned import run_planned

pytestmark = [pytest.mark.skipif(bool(WHY_NOT), reason=WHY_NOT), pytest.mark.usefixtures("assembler")]

Compute = Callable[..., object]


class Computed(nn.Module):
    def __init__(self, compute: Compute) -> None:
        super().__init__()
        self.compute = compute

    def forward(self, *given: Tensor) -> object:
        return self.compute(*given)


def _numbers(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    random = np.random.default_rng(list(shape))
    return torch.tensor(random.integers(-9, 9, shape) / 4, dtype=dtype)  # of which sums are exact, and some are equal


def _places(*shape: int, below: int) -> Tensor:
    return torch.tensor(np.random.default_rng([*shape, below]).integers(0, below, shape))


def check(compute: Compute, *given: Tensor, lines: int = 1) -> None:
    """Assert that the kernels of CUDA, so many of which are of `lines`, make what torch does, in two orders."""
    expected = compute(*(each.double() if each.dtype.is_floating_point else each for each in given))
    wanted = list(expected) if isinstance(expected, tuple) else [expected]
    module = fusion.compile((Computed(compute).eval(), given), target="cuda -arch=sm_80")
    (form,) = module.specializations
    assert [kernel.template for kernel in form.kernels.values()].count("lines") >= lines
    arrays = [each.view(torch.uint16).numpy().view(ml_dtypes.bfloat16) if each.dtype == torch.bfloat16 else each.numpy()
              for each in given]  # fmt: skip
    for order in (0, 3):
        for found, want in zip(run_planned(module, *arrays, orders=(order,)), wanted, strict=True):
            array = want.numpy()
            np.testing.assert_array_equal(found.reshape(array.shape).astype(array.dtype), array)


DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64], ids=str)


@DTYPES
@pytest.mark.parametrize("axis", [1, 2])
def test_running_sums(dtype: torch.dtype, axis: int) -> None:
    check(lambda x: x.cumsum(axis).to(x.dtype), _numbers(3, 5, 70, dtype=dtype))


def test_running_sums_of_many_lines_have_a_thread_each() -> None:
    check(lambda x: x.cumsum(1), _numbers(2, 6, 600))


def test_running_products() -> None:
    check(lambda x: x.cumprod(-1), torch.tensor([[1.0, 2, -4, 0.5], [-0.0, 3, 1, 1]]))


@DTYPES
@pytest.mark.parametrize(("axis", "largest"), [(1, True), (-1, False)])
def test_the_first_in_order(dtype: torch.dtype, axis: int, largest: bool) -> None:
    """Of equal ones that which comes first, which torch leaves open: places are asked of a stable sort."""
    x = _numbers(4, 6, 10, dtype=dtype)
    how = {"dim": axis, "descending": largest, "stable": True}
    check(lambda x: (x.topk(3, axis, largest=largest)[0], *x.sort(**how)), x, lines=2)


@pytest.mark.parametrize("nan", [math.nan, -math.nan])
def test_nan_is_above_all_numbers(nan: float) -> None:
    """That which CPUs make of 0 / 0 has the sign of negative numbers."""
    x = torch.tensor([[1.0, nan, math.inf, -0.0, 0.0, -math.inf]])
    check(lambda x: (*x.sort(dim=-1, stable=True), *x.topk(2, -1)), x, lines=2)


def test_medians() -> None:
    """The lower of two in the middle, and NaN where there is one."""
    x = _numbers(3, 4, 2)
    x[1, 2, 0] = math.nan
    check(lambda x: (x.median(1).values, x.median()), x)


def _scattered(x: Tensor, places: Tensor, updates: Tensor, distinct: Tensor) -> object:
    """Two updates of one place too: of those that replace the later one stays."""
    return (
        x.scatter_add(1, places, updates), x.scatter_reduce(1, places, updates, "amax"),
        x.scatter(1, distinct, updates), x.scatter(1, places, 2),
    )  # fmt: skip


@DTYPES
def test_scatters(dtype: torch.dtype) -> None:
    data, updates, places = _numbers(4, 9, 5, dtype=dtype), _numbers(3, 7, 4, dtype=dtype), _places(3, 7, 4, below=9)
    distinct = torch.tensor(np.argsort(np.random.default_rng(5).random((3, 9, 4)), 1)[:, :7].copy())
    check(_scattered, data, places, updates, distinct, lines=3)  # of which one is called twice


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("extreme", ["amax", "amin"])
def test_nan_passes_through_scattered_extremes(dtype: torch.dtype, extreme: str) -> None:
    data, updates = torch.tensor([[1, math.nan, 3, 4, 5]]), torch.tensor([[math.nan, 2, math.nan, 1, 9, math.nan]])
    places = torch.tensor([[0, 1, 2, 2, 3, 3]])
    check(lambda x, i, u: x.scatter_reduce(1, i, u, extreme), data.to(dtype), places, updates.to(dtype))


def _written(cache: Tensor, rows: Tensor, at: Tensor, two: Tensor, one: Tensor, few: Tensor) -> object:
    """A cache of keys at a position, rows, rows that meet, and numbers of which some meet, the last one or all."""
    single, places = rows.reshape(-1)[:5], (few, few + 2, few)
    return (
        cache.index_copy(1, at, rows), cache.index_put((two, two + 4), rows[:, 0]), cache.index_add(0, one, cache),
        cache.index_put(places, single), cache.index_put(places, single, accumulate=True),
    )  # fmt: skip


@DTYPES
def test_indexed_writes(dtype: torch.dtype) -> None:
    places = [torch.tensor(each) for each in ([6, 3], [1, 0], [1, 1], [1, 0, 1, 1, 0])]
    check(_written, _numbers(2, 8, 4, dtype=dtype), _numbers(2, 2, 4, dtype=dtype), *places)


def test_indexed_writes_of_booleans() -> None:
    check(lambda c, p, r: c.index_put((p, p), r), _numbers(4, 5) > 0, torch.tensor([3, 1]), torch.tensor([True, False]))


def test_indexed_writes_of_long_rows_have_a_thread_for_each_element() -> None:
    check(lambda c, p, r: c.index_put((p,), r, True), _numbers(3, 1024), _places(4, below=3), _numbers(4, 1024))


def test_classes_become_columns_whose_numbers_the_kernel_checks() -> None:
    """torch's own assertions ask the host."""
    check(lambda i: functional.one_hot(i, 5), _places(3, 4, below=5))


@pytest.mark.parametrize(("dim", "keep"), [(1, False), (-1, True)])
def test_the_largest_and_where_it_is_are_reductions(dim: int, keep: bool) -> None:
    """They were the first of a sort."""
    x = _numbers(3, 5, 7)
    network = Computed(lambda x: (*torch.max(x, dim, keep), *torch.min(x, dim, keep)))
    module = fusion.compile((network, (x,)), target="cuda -arch=sm_80")
    for found, wanted in zip(run_planned(module, x.numpy()), network(x), strict=True):
        np.testing.assert_array_equal(found.reshape(wanted.shape), wanted.numpy())


def test_pools_of_uneven_windows() -> None:
    image = _numbers(2, 3, 11, 13)
    pools = functional.adaptive_max_pool2d, functional.adaptive_avg_pool2d
    network = Computed(lambda x: tuple(pool(x, (4, 5)) for pool in pools))
    module = fusion.compile((network, (image,)), target="cuda -arch=sm_80")
    for found, wanted in zip(run_planned(module, image.numpy()), network(image.double()), strict=True):
        np.testing.assert_allclose(found.reshape(wanted.shape), wanted.numpy(), rtol=1e-6, atol=1e-6)
