"""The pool of arenas: bounded, first come first served, none lost to interrupts, memory or forks."""

from __future__ import annotations

import gc
import os
import threading
import time
from collections.abc import Callable

import pytest

from fusion.errors import LimitError
from fusion.module import arenas as arenas_module
from fusion.module.arenas import Arenas
from fusion.system.cpus import allowed_cpus

MOST = arenas_module.PER_CPU * allowed_cpus()


class Arena:
    """What a test takes."""


@pytest.fixture
def pool() -> Arenas[Arena]:
    return Arenas(Arena)


def _in_thread(call: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=call)
    thread.start()
    return thread


def _wait_until(holds: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_the_arena_used_last_comes_first(pool: Arenas[Arena]) -> None:
    first = pool.take()
    pool.give(first)
    assert pool.take() is first


def test_there_are_no_more_than_cpus_and_those_who_wait_take_turns(pool: Arenas[Arena]) -> None:
    taken = [pool.take() for _ in range(MOST)]
    assert len({id(arena) for arena in taken}) == MOST
    order: list[int] = []

    def wait(number: int) -> None:
        arena = pool.take()
        order.append(number)
        pool.give(arena)

    threads = []
    for number in range(4):
        threads.append(_in_thread(lambda number=number: wait(number)))
        _wait_until(lambda: len(pool._queue) == len(threads))
    assert not order
    pool.give(taken[0])
    for thread in threads:
        thread.join()
    assert order == [0, 1, 2, 3]


def test_an_arena_that_was_lost_is_made_again(pool: Arenas[Arena]) -> None:
    for _ in range(MOST + 1):
        pool.take()  # and never given back, as after an interrupt
        gc.collect()
    assert len(pool._made) <= MOST


def test_where_there_is_no_memory_for_another_a_call_waits() -> None:
    allowed = iter([Arena()])

    def make() -> Arena:
        try:
            return next(allowed)
        except StopIteration:
            raise LimitError("no memory") from None

    pool = Arenas(make)
    taken = pool.take()
    got: list[Arena] = []
    thread = _in_thread(lambda: got.append(pool.take()))
    _wait_until(lambda: bool(pool._queue))
    pool.give(taken)
    thread.join()
    assert got == [taken]


def test_idle_arenas_are_freed_but_one(pool: Arenas[Arena], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas_module, "_IDLE_S", 0.01)
    for arena in [pool.take() for _ in range(MOST)]:
        pool.give(arena)
    _wait_until(lambda: len(pool._idle) == 1)


def test_where_no_thread_can_start_a_call_succeeds(pool: Arenas[Arena], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas_module, "_IDLE_S", 0.01)
    _wait_until(lambda: not arenas_module._to_shrink)
    first, second = pool.take(), pool.take()
    pool.give(first)
    with monkeypatch.context() as refused:
        refused.setattr(threading.Thread, "start", _refuse)
        pool.give(second)
    assert len(pool._idle) == 2
    pool.give(pool.take())
    _wait_until(lambda: len(pool._idle) == 1)


def _refuse(thread: threading.Thread) -> None:
    raise RuntimeError("can't start new thread")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:This process")  # of its threads, none of which the test waits for
def test_a_child_has_what_other_threads_of_its_parent_took(pool: Arenas[Arena]) -> None:
    taken = [pool.take() for _ in range(MOST)]
    child = os.fork()
    if child == 0:
        pool.take()
        os._exit(0)
    _wait_until(lambda: os.waitpid(child, os.WNOHANG) != (0, 0))
    for arena in taken:
        pool.give(arena)
