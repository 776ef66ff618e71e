"""Calls a function for many items, on all CPUs: LLVM and hashing run outside of Python's lock."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterable
from contextvars import copy_context
from typing import TypeVar

from fusion.cpus import allowed_cpus
from fusion.interrupts import deferring_interrupts

T = TypeVar("T")
R = TypeVar("R")


def map_in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what `function` returns for each of `items`, in order, from a thread for each CPU, or from as many as the
    system starts, and from the calling one where it starts none; all see the caller's context variables.

    An exception of `function`, and an interrupt, is raised here once the calls under way have ended; no others are
    made. A process that ended while a thread is in LLVM would be aborted.
    """
    waiting = deque(enumerate(items))
    done: dict[int, R] = {}
    raised: list[BaseException] = []

    def work() -> None:
        while not raised:
            try:
                index, item = waiting.popleft()
            except IndexError:
                return
            try:
                done[index] = function(item)
            except BaseException as error:
                raised.append(error)

    with deferring_interrupts(raised.append):
        threads = _start(work, min(allowed_cpus(), len(waiting)))
        if not threads:
            work()
        for thread in threads:
            thread.join()
    if raised:
        raise raised.pop(0)
    return [done[index] for index in range(len(done))]


def _start(work: Callable[[], None], count: int) -> list[threading.Thread]:
    started: list[threading.Thread] = []
    for _ in range(count):
        thread = threading.Thread(target=copy_context().run, args=(work,), name="fusion-map-in-threads")
        try:
            thread.start()
        except RuntimeError:  # the system's limit, or the end of the process
            break
        started.append(thread)
    return started
