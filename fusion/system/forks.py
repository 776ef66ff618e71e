"""Locks in a process that came out of a fork: there the threads that held them do not exist."""

from __future__ import annotations

import os
import weakref
from _thread import RLock  # what threading.RLock makes, as a class
from collections.abc import Callable
from typing import Any


class Lock(RLock):  # type: ignore[misc]  # final in typeshed only
    """A lock that a forked process finds open, unless the thread that forked holds it; a thread may take it again.

    Taking it is one step, of C: an interrupt between two of Python's would leave it taken.
    """

    def __new__(cls, *arguments: Any) -> Lock:
        return super().__new__(cls)

    def __init__(self, forget: Callable[[], None] = lambda: None) -> None:
        """`forget` is called in a forked process for what another thread was doing under the lock."""
        self._forget = forget
        _all.add(self)

    def forget_other_threads(self) -> None:
        """In a forked process, take the lock from a thread that is not there."""
        # As threading itself does; typeshed leaves both out.
        if not self._is_owned():  # type: ignore[attr-defined]
            self._at_fork_reinit()  # type: ignore[attr-defined]
            self._forget()


_all: weakref.WeakSet[Lock] = weakref.WeakSet()


def _after_fork() -> None:
    for lock in list(_all):
        lock.forget_other_threads()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
