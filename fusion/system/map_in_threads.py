"""Calls functions in threads, on all CPUs: LLVM and hashing run outside of Python's lock."""

from __future__ import annotations

import heapq
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from contextvars import copy_context
from functools import partial
from itertools import count
from queue import SimpleQueue
from types import TracebackType
from typing import Any, TypeVar

from fusion.system.cpus import allowed_cpus
from fusion.system.interrupts import deferring_interrupts

T = TypeVar("T")
R = TypeVar("R")


class ThreadedCalls:
    """Calls that threads make while the caller works on, the longest first of those that wait, and else in the order
    they are added; all see the context variables of whoever made this.

    There is a thread for each CPU but the caller's, and for that too while it waits; where the system starts none, the
    waiting caller makes the calls. The end of a `with` block makes no more, and waits for those under way: a process
    that ended while a thread is in LLVM would be aborted.
    """

    def __init__(self) -> None:
        self._numbers = count()
        self._waiting: dict[int, Callable[[], None]] = {}
        # A heap of numbers alone is pushed and popped without a lock, as nothing of Python compares them.
        self._order: list[tuple[float, int]] = []
        self._tickets: SimpleQueue[bool] = SimpleQueue()  # one for each call, False for the end of a thread
        self._interrupts: list[BaseException] = []
        self._is_over = False
        self._threads: list[threading.Thread] = []
        self._context = copy_context()

    def __enter__(self) -> ThreadedCalls:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._is_over = True
        self._end()
        if error is None:
            self._raise()

    def add(self, function: Callable[[], R], length: float = 0) -> Future[R]:
        """Have a thread call `function`, which takes so long beside others, unless what is returned is cancelled
        before."""
        call = Future[R]()
        number = next(self._numbers)
        self._waiting[number] = partial(self._make, call, function)
        heapq.heappush(self._order, (-length, number))
        self._tickets.put(True)
        with deferring_interrupts(self._interrupts.append):
            if len(self._threads) < allowed_cpus() - 1:
                self._start()
        self._raise()
        return call

    def results(self, calls: Sequence[Future[R]]) -> list[R]:
        """Wait until all that was added is done or cancelled, and return the results of `calls`, or raise what the
        first of them that failed did."""
        self._end()
        self._raise()
        return [call.result() for call in calls]

    def _raise(self) -> None:
        if self._interrupts:
            raise self._interrupts.pop()

    def _end(self) -> None:
        def interrupt(error: BaseException) -> None:
            self._interrupts.append(error)
            self._is_over = True

        with deferring_interrupts(interrupt):
            while not self._tickets.empty() and len(self._threads) < allowed_cpus() and self._start():
                pass
            for _ in self._threads or (None,):
                self._tickets.put(False)
            if not self._threads:
                self._work()
            while self._threads:
                self._threads.pop().join()

    def _start(self) -> bool:
        """Start a thread; return whether the system does."""
        thread = threading.Thread(target=self._context.copy().run, args=(self._work,), name="fusion-threaded-calls")
        try:
            thread.start()
        except RuntimeError:  # the system's limit, or the end of the process
            return False
        self._threads.append(thread)
        return True

    def _work(self) -> None:
        while self._tickets.get():
            _, number = heapq.heappop(self._order)
            self._waiting.pop(number)()

    def _make(self, call: Future[R], function: Callable[[], R]) -> None:
        if self._is_over:
            call.cancel()
        if call.set_running_or_notify_cancel():
            try:
                call.set_result(function())
            except BaseException as error:
                call.set_exception(error)


def map_in_threads(function: Callable[[T], R], items: Iterable[T]) -> list[R]:
    """Return what `function` returns for each of `items`, in order.

    An exception of `function`, and an interrupt, is raised here once the calls under way have ended; no others are
    made.
    """
    raised: list[BaseException] = []

    def call(item: T) -> Any:
        if raised:
            return None
        try:
            return function(item)
        except BaseException as error:
            raised.append(error)
            return None

    with ThreadedCalls() as calls:
        results = calls.results([calls.add(partial(call, item)) for item in items])
    if raised:
        raise raised.pop(0)
    return results
