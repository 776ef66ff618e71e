"""`module.map`: results in order, few inputs taken ahead, errors in their place, no threads left."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
import torch

import fusion
from fusion.errors import InputError, OptionError, ResourceError
from fusion.module import share_cpus
from tests.module import small_models


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    return fusion.compile(small_models.softmax_of_columns(), threads=2)


@pytest.fixture(autouse=True)
def _no_threads_left() -> Iterator[None]:
    before = _threads()
    yield
    assert not _threads() - before


def _threads() -> set[threading.Thread]:
    """The threads, but the one that frees idle arenas, seconds after the last call."""
    return {thread for thread in threading.enumerate() if thread.name != "fusion-arenas"}


def arrays(count: int) -> list[np.ndarray]:
    return [np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32) for seed in range(count)]


@pytest.mark.parametrize("workers", [None, 1, 2, 5])
def test_results_are_those_of_calls_in_order(module: fusion.CompiledModule, workers: int | None) -> None:
    inputs = arrays(40)
    alone = [module(array)[0] for array in inputs]
    for (result,), expected in zip(module.map(inputs, workers), alone, strict=True):
        np.testing.assert_array_equal(result, expected)


def test_items_are_what_run_or_a_call_takes(module: fusion.CompiledModule) -> None:
    (array,) = arrays(1)
    expected = module(array)[0]
    by_name, by_position, only = module.map([{"x": array}, (array,), array])
    np.testing.assert_array_equal(by_name["y"], expected)
    np.testing.assert_array_equal(by_position[0], expected)
    np.testing.assert_array_equal(only[0], expected)
    assert list(module.map([])) == []


@pytest.mark.parametrize("workers", [1, 3])
@pytest.mark.parametrize("form", ["array", "by position", "by name", "torch"])
def test_a_generator_may_reuse_its_memory(module: fusion.CompiledModule, form: str, workers: int) -> None:
    buffer = np.empty((3, 8), np.float32)
    inputs = arrays(20)
    items = {"array": buffer, "by position": (buffer,), "by name": {"x": buffer}, "torch": torch.from_numpy(buffer)}

    def refilled() -> Iterator[Any]:
        for array in inputs:
            buffer[:] = array
            yield items[form]

    expected = [module(array)[0] for array in inputs]
    for result, wanted in zip(module.map(refilled(), workers), expected, strict=True):
        np.testing.assert_array_equal(result["y"] if form == "by name" else result[0], wanted)


@pytest.mark.parametrize("item", ["text", None, {"z": 1}, ("text",), {"x": "text"}])
def test_what_is_no_array_is_refused_as_by_a_call(module: fusion.CompiledModule, item: Any) -> None:
    with pytest.raises(InputError) as alone:
        module._run_item(item)
    with pytest.raises(InputError) as mapped:
        next(module.map([item], 1))
    assert str(mapped.value) == str(alone.value)


def test_few_inputs_are_taken_ahead(module: fusion.CompiledModule) -> None:
    taken = []

    def inputs() -> Iterator[np.ndarray]:
        for number, array in enumerate(arrays(50)):
            taken.append(number)
            yield array

    results = module.map(inputs(), workers=3)
    assert not taken
    for number, _ in enumerate(results):
        assert len(taken) <= number + 2 * 3 + 1
    assert len(taken) == 50


def test_an_error_of_the_inputs_comes_behind_the_results_before_it(module: fusion.CompiledModule) -> None:
    def inputs() -> Iterator[np.ndarray]:
        yield from arrays(5)
        raise KeyError("sixth")

    results = module.map(inputs(), workers=2)
    for _ in range(5):
        next(results)
    with pytest.raises(KeyError, match="sixth"):
        next(results)
    assert list(results) == []


def test_an_error_of_a_run_comes_in_its_place(module: fusion.CompiledModule) -> None:
    good = arrays(10)
    results = module.map([*good[:4], good[4][:1], *good[5:]], workers=4)
    for array in good[:4]:
        np.testing.assert_array_equal(next(results)[0], module(array)[0])
    with pytest.raises(InputError, match="wrong shape"):
        next(results)
    assert list(results) == []


def test_where_no_thread_can_start_it_is_an_error(
    module: fusion.CompiledModule, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with pytest.raises(ResourceError, match="map cannot start its threads"):
        next(module.map(arrays(1), workers=1))


def test_closing_it_early_ends_its_workers(module: fusion.CompiledModule) -> None:
    results = module.map(iter(arrays(1) * 1000), workers=4)
    next(results)
    results.close()
    dropped = module.map(arrays(1) * 1000, workers=4)
    next(dropped)
    del dropped  # as does who forgets it, and `break` in a loop


def test_streams_may_be_nested_and_run_in_several_threads(module: fusion.CompiledModule) -> None:
    inputs = arrays(20)
    alone = [module(array)[0] for array in inputs]

    def nested(_: int) -> list[Any]:
        echoed = (array for _, array in zip(module.map(inputs, 2), inputs, strict=True))
        return [result for (result,) in module.map(echoed, 2)]

    with ThreadPoolExecutor(4) as callers:
        for results in callers.map(nested, range(4)):
            np.testing.assert_array_equal(results, alone)


@pytest.mark.parametrize("workers", [0, -1, 1.5, "two", True, 100_000])
def test_other_numbers_of_workers_are_refused(module: fusion.CompiledModule, workers: Any) -> None:
    with pytest.raises(OptionError, match="workers="):
        module.map([], workers)


def test_what_is_no_iterable_is_refused(module: fusion.CompiledModule) -> None:
    with pytest.raises(InputError, match="iterable"):
        module.map(3)  # type: ignore[arg-type]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")  # of its threads, which the child makes anew
def test_a_child_goes_on_with_it(module: fusion.CompiledModule) -> None:
    inputs = arrays(30)
    results = module.map(inputs, workers=2)
    first = [next(results)[0] for _ in range(3)]
    child = os.fork()
    if not child:
        same = [np.array_equal(result, module(array)[0]) for (result,), array in zip(results, inputs[3:], strict=True)]
        os._exit(7 if len(same) == 27 and all(same) else 1)
    assert os.waitpid(child, 0)[1] >> 8 == 7
    assert len(first) + len(list(results)) == 30


def test_runs_at_a_time_share_the_cpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(share_cpus, "_cpus", 8)
    with ThreadPoolExecutor(8) as callers:
        inside, over = threading.Barrier(9), threading.Event()

        def run() -> int:
            share = share_cpus.enter()
            inside.wait(10)
            over.wait(10)
            share_cpus.leave()
            return share

        runs = [callers.submit(run) for _ in range(8)]
        inside.wait(10)
        over.set()
        assert sorted(run.result(10) for run in runs) == [0, 1, 1, 1, 1, 2, 2, 4]
    assert share_cpus.enter() == 0
    share_cpus.leave()
