"""What concurrent calls of one module write to: an arena for each, of a small pool."""

from __future__ import annotations

import contextlib
import functools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, Generic, TypeVar

from fusion.errors import LimitError
from fusion.system.cpus import allowed_cpus
from fusion.system.forks import Lock

T = TypeVar("T")

PER_CPU = 4
"""Arenas a CPU. With one, callers beyond the CPUs waited for each other at every run: BERT-tiny, 4 and 8 callers on two
CPUs, did 1260 and 1150 runs in a second of CPU time, with four 1360 and 1350 (2 callers: 1410)."""
_IDLE_S = 10.0
"""So long after calls ran at a time, the arenas that are idle are freed but one."""
_PATIENCE_S = 1.0
"""So often who waits looks whether an arena was lost, by an interrupt just after it was taken."""


class Arenas(Generic[T]):
    """A pool of arenas, as many as there are calls at a time and at most `PER_CPU` for each CPU.

    A call that finds all in use waits, in the order of arrival: with more at a time none would end sooner.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        """`make` allocates an arena; the first one now.

        Raises:
            LimitError: Of `make`.
        """
        self._make = make
        self._most = PER_CPU * allowed_cpus()
        self._idle: deque[T] = deque([make()])
        self._made: weakref.WeakSet[T] = weakref.WeakSet(self._idle)
        self._queue: deque[object] = deque()
        # Not a method of this: arenas would be freed with the next collection of cycles only.
        self._lock = Lock(functools.partial(_forget, self._made, self._idle, self._queue))
        self._changed = threading.Condition(self._lock)

    def take(self) -> T:
        """Return an arena that nobody else has until `give`. Who has one must not take another: all could wait."""
        if not self._queue:
            with contextlib.suppress(IndexError):
                return self._idle.pop()  # the one used last, which caches may still hold
        return self._take_in_turn()

    def give(self, arena: T) -> None:
        """Take back an arena."""
        self._idle.append(arena)
        if self._queue:
            with self._lock:
                self._changed.notify_all()
        elif len(self._idle) > 1:
            _shrink_later(self)

    def shrink(self) -> None:
        """Free the arenas that are idle, but one."""
        while len(self._idle) > 1:
            with contextlib.suppress(IndexError):
                self._idle.popleft()

    def _take_in_turn(self) -> T:
        ticket = object()
        with self._lock:  # not by `_changed`, which an interrupt could leave taken
            self._queue.append(ticket)
            try:
                while self._queue[0] is not ticket or (arena := self._next()) is None:
                    self._changed.wait(_PATIENCE_S)
                return arena
            finally:
                self._queue.remove(ticket)
                self._changed.notify_all()

    def _next(self) -> T | None:
        """Return an idle arena or a new one; None if there are as many as there may be."""
        with contextlib.suppress(IndexError):
            return self._idle.pop()
        if len(self._made) >= self._most:
            return None
        try:
            arena = self._make()
        except LimitError:
            if self._made:
                return None
            raise
        self._made.add(arena)
        return arena


def _forget(made: weakref.WeakSet[T], idle: deque[T], queue: deque[object]) -> None:
    """In a process that came out of a fork, give up what its other threads had."""
    made.clear()
    made.update(idle)
    queue.clear()


_to_shrink: weakref.WeakSet[Arenas[Any]] = weakref.WeakSet()
_shrinking = Lock(_to_shrink.clear)


def _shrink_later(arenas: Arenas[Any]) -> None:
    """Shrink `arenas` in `_IDLE_S`; one thread does that for all that ask before it does, and ends."""
    if arenas in _to_shrink:
        return
    with _shrinking:
        if not _to_shrink:
            try:
                threading.Thread(target=_shrink_all, name="fusion-arenas", daemon=True).start()
            except RuntimeError:  # the system's limit, or the end of the process; later calls try again
                return
        _to_shrink.add(arenas)


def _shrink_all() -> None:
    time.sleep(_IDLE_S)
    with _shrinking:
        known = list(_to_shrink)
        _to_shrink.clear()
    for arenas in known:
        arenas.shrink()
