"""Locks in a process that came out of a fork: there the threads that held them do not exist."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Callable
from types import TracebackType


class Lock:
    """A lock that a forked process finds open, unless the thread that forked holds it."""

    def __init__(self, forget: Callable[[], None] = lambda: None) -> None:
        """`forget` is called in a forked process for what another thread was doing under the lock."""
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._forget = forget
        _all.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()
        self._owner = threading.get_ident()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._owner = None
        self._lock.release()

    def forget_other_threads(self) -> None:
        """In a forked process, take the lock from a thread that is not there."""
        if self._owner != threading.get_ident():
            self._lock, self._owner = threading.Lock(), None
            self._forget()


_all: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_all):
        lock.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
