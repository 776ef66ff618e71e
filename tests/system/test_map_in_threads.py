"""Calls on all CPUs: in order, ended by the first exception, also where the system starts no thread."""

from __future__ import annotations

import threading
import time
from functools import partial

import numpy as np
import pytest

import fusion
from fusion.system.cpus import allowed_cpus
from fusion.system.map_in_threads import ThreadedCalls, map_in_threads
from tests.module import small_models


@pytest.fixture(params=["threads", "no threads"])
def _threads(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    if request.param == "no threads":
        monkeypatch.setattr(threading.Thread, "start", refuse)


@pytest.mark.usefixtures("_threads")
def test_results_are_in_order() -> None:
    assert map_in_threads(lambda n: n * n, range(100)) == [n * n for n in range(100)]
    assert map_in_threads(str, []) == []


@pytest.mark.usefixtures("_threads")
@pytest.mark.parametrize("kind", [ValueError, KeyboardInterrupt])
def test_an_exception_ends_it(kind: type[BaseException]) -> None:
    begun: list[int] = []

    def fail(n: int) -> None:
        begun.append(n)
        time.sleep(0.01)
        raise kind(n)

    with pytest.raises(kind):
        map_in_threads(fail, range(1000))
    assert len(begun) <= allowed_cpus()


@pytest.mark.usefixtures("_threads")
def test_calls_are_made_while_others_are_added() -> None:
    with ThreadedCalls() as calls:
        first = calls.add(lambda: 1)
        second, dropped = calls.add(lambda: 2), calls.add(lambda: 3)
        is_dropped = dropped.cancel()
        assert calls.results([first, second]) == [1, 2]
        assert is_dropped or dropped.result() == 3
        assert calls.results([calls.add(lambda: 4)]) == [4]


@pytest.mark.usefixtures("_threads")
def test_the_longest_that_waits_is_made_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fusion.system.map_in_threads.allowed_cpus", lambda: 1)  # no thread has any before `results`
    made: list[str] = []
    with ThreadedCalls() as calls:
        lengths = {"short": 1.0, "long": 9.0, "as long": 9.0, "of no length": 0.0}
        calls.results([calls.add(partial(made.append, name), length=length) for name, length in lengths.items()])
    assert made == ["long", "as long", "short", "of no length"]


@pytest.mark.usefixtures("_threads")
def test_the_end_of_a_block_waits_for_what_is_under_way_alone() -> None:
    under_way, begun, done = threading.Event(), list[int](), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        under_way.set()
        time.sleep(0.05)
        done.append(number)

    with ThreadedCalls() as calls:
        for number in range(100):
            calls.add(partial(work, number))
        under_way.wait(0.2)
    assert begun == done
    assert len(begun) <= allowed_cpus()


def test_results_raise_what_their_calls_did() -> None:
    def fail() -> None:
        raise ValueError("of a call")

    with ThreadedCalls() as calls:
        failing, other = calls.add(fail), calls.add(lambda: 1)
        assert calls.results([other]) == [1]
        with pytest.raises(ValueError, match="of a call"):
            calls.results([failing])


@pytest.mark.usefixtures("_threads")
def test_models_compile_and_are_saved(tmp_path: object) -> None:
    compiled = fusion.compile(small_models.mlp(), threads=1, cache=False)
    assert not any("defect" in note or "linker" in note for note in compiled.specializations[0].notes)
    compiled.save(f"{tmp_path}/saved.fusion")
    x = np.ones((3, 8), np.float32)
    np.testing.assert_array_equal(fusion.load(f"{tmp_path}/saved.fusion")(x)[0], compiled(x)[0])
