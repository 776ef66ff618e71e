"""Calls of one module from several threads: each returns what it would alone."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import InputError
from fusion.module.specializations import Specializations
from tests.module import small_models

ROWS = 512


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    return fusion.compile(small_models.softmax_of_columns(), threads=2)


def inputs(count: int) -> list[np.ndarray]:
    return [np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32) for seed in range(count)]


def test_each_call_returns_what_it_returns_alone(module: fusion.CompiledModule) -> None:
    arrays = inputs(50)
    alone = [module(array)[0] for array in arrays]

    def call(caller: int) -> bool:
        return all(np.array_equal(module(arrays[at % 50])[0], alone[at % 50]) for at in range(caller, caller + 200))

    with ThreadPoolExecutor(8) as callers:
        assert all(callers.map(call, range(8)))


class Calling:
    """An array that calls back while it is read."""

    def __init__(self, array: np.ndarray, call: Callable[[], object]) -> None:
        self._array, self._call = array, call

    def __dlpack__(self, **options: Any) -> Any:
        self._call()
        return self._array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self._array.__dlpack_device__()


def test_arrays_may_call_the_module_while_it_reads_them(module: fusion.CompiledModule) -> None:
    first, second = inputs(2)
    within: list[np.ndarray] = []
    outer = module(Calling(first, lambda: within.append(module(Calling(second, lambda: module(first)))[0])))[0]
    np.testing.assert_array_equal(outer, module(first)[0])
    np.testing.assert_array_equal(within[0], module(second)[0])


def test_a_call_that_fails_leaves_the_others_alone(module: fusion.CompiledModule) -> None:
    array = inputs(1)[0]
    alone = module(array)[0]

    def call(number: int) -> bool:
        if number % 2:
            with pytest.raises(InputError):
                module(array[:1])
        return bool(np.array_equal(module(array)[0], alone))

    with ThreadPoolExecutor(4) as callers:
        assert all(callers.map(call, range(100)))


def test_a_form_is_made_once_and_stops_no_other() -> None:
    """Specializations alone: compiling is whatever `make` does."""
    dynamic = fusion.compile(small_models.mlp("n"), wait=True)
    ready = fusion.compile(small_models.mlp("n"), shapes={"x": (2, 8)}).specializations
    made, begun, may_end = list[object](), threading.Event(), threading.Event()

    def make(shapes: dict[str, tuple[int, ...]]) -> Any:
        made.append(shapes)
        begun.set()
        assert may_end.wait(10)
        return ready[0]

    forms = Specializations(dynamic.inputs, make, ready)
    with ThreadPoolExecutor(3) as callers:
        first = callers.submit(forms.find, [np.zeros((5, 8), np.float32)])
        assert begun.wait(10)
        second = callers.submit(forms.find, [np.zeros((5, 8), np.float32)])
        assert callers.submit(forms.find, [np.zeros((2, 8), np.float32)]).result(10) is ready[0]
        assert not first.done()
        may_end.set()
        assert first.result(10) is second.result(10)
    assert made == [{"x": (5, 8)}]
