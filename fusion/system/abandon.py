"""Lets compilations in the background end early: all when the process ends, and those that nobody waits for when
somebody waits for another, as one model is compiled at a time and they have a low priority."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

from fusion.system.forks import Lock

_ending = threading.Event()
_of_thread = threading.local()
_waited_for: set[object] = set()
_lock = Lock(_waited_for.clear)
_PATIENCE_S = 0.05
"""So often who gave way looks whether it may go on."""


class Abandoned(BaseException):
    """A compilation in the background ends; no `Exception`, so that nothing tries another form of the model."""


@contextlib.contextmanager
def abandonable(*, gives_way: bool = False) -> Iterator[None]:
    """Let `checkpoint` end what the calling thread compiles; also where it `gives_way` to what others compile."""
    _of_thread.check = _check_way if gives_way else _check
    try:
        yield
    finally:
        _of_thread.check = _go_on


def checkpoint() -> Callable[[], None]:
    """Return what raises `Abandoned`, in any thread, once the compilation of the calling thread is abandoned.

    The longest time between two calls of it is what a process may take to end.
    """
    check: Callable[[], None] = getattr(_of_thread, "check", _go_on)
    return check


@contextlib.contextmanager
def taking_precedence() -> Iterator[None]:
    """Have compilations that give way do so, while the calling thread compiles or waits for what is compiled; nothing
    in a thread that gives way itself."""
    if checkpoint() is _check_way:
        yield
        return
    token = object()
    with _lock:
        _waited_for.add(token)
    try:
        yield
    finally:
        with _lock:
            _waited_for.discard(token)


def gives_way_now() -> bool:
    """Return whether somebody takes precedence, if so after a moment, or when the process ends."""
    return bool(_waited_for) and not _ending.wait(_PATIENCE_S)


def abandon_all() -> None:
    """Abandon what is compiled in the background, now and later."""
    _ending.set()


def abandoned() -> bool:
    """Return whether nothing is compiled in the background any more."""
    return _ending.is_set()


def _check() -> None:
    if _ending.is_set():
        raise Abandoned


def _check_way() -> None:
    if _waited_for or _ending.is_set():
        raise Abandoned


def _go_on() -> None:
    pass
