"""Calls of a function for a stream of items, some at a time, in order: what `CompiledModule.map` does."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from fusion.errors import ResourceError
from fusion.system.interrupts import holding_in_steps, raising_interrupts, result_of, wait_until_done

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2
"""Items under way for each worker: one that is run, and one to go on with."""


def stream(call: Callable[[T], R], items: Iterator[T], workers: int) -> Generator[R, None, None]:
    """Yield what `call` returns for each of `items`, in order, while `workers` threads call it.

    Items are taken in the thread that takes the results, and at most two for each worker before the result of the first
    of them. An exception of `call` or of `items` comes in the place of a result, and is the end. To close the generator
    waits for the calls that are being made and makes no others.
    """
    return holding_in_steps(_results(call, items, workers))


def _results(call: Callable[[T], R], items: Iterator[T], workers: int) -> Generator[R, None, None]:
    pool, process, failure = _pool(workers), os.getpid(), None
    under_way: deque[tuple[T, Future[R]]] = deque()
    try:
        while True:
            while failure is None and len(under_way) < _AHEAD * workers:
                try:
                    with raising_interrupts():
                        item = next(items)
                    under_way.append((item, _submit(pool, call, item)))
                except Exception as error:  # the last is StopIteration
                    failure = error
            if not under_way:
                break
            result = result_of(under_way[0][1])
            under_way.popleft()
            yield result
            if os.getpid() != process:  # a fork: the threads are not here
                pool, process = _pool(workers), os.getpid()
                under_way = deque((item, _submit(pool, call, item)) for item, _ in under_way)
    finally:
        if os.getpid() == process:
            pool.shutdown(wait=False, cancel_futures=True)
            wait_until_done([call for _, call in under_way if not call.cancelled()])
            pool.shutdown()
    if failure is not None and not isinstance(failure, StopIteration):
        raise failure


def _submit(pool: ThreadPoolExecutor, call: Callable[[T], R], item: T) -> Future[R]:
    try:
        return pool.submit(call, item)
    except RuntimeError as error:
        raise ResourceError(
            "map cannot start its threads",
            why=str(error),
            hint="give fewer workers=, raise the limits (ulimit -a), or call the module itself",
        ) from error


def _pool(workers: int) -> ThreadPoolExecutor:
    return ThreadPoolExecutor(workers, thread_name_prefix="fusion-map")
