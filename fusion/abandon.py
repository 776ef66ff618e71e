"""Lets compilations in the background end early when the process does: nobody waits for them any more."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator

_ending = threading.Event()
_of_thread = threading.local()


class Abandoned(BaseException):
    """A compilation in the background ends; no `Exception`, so that nothing tries another form of the model."""


@contextlib.contextmanager
def abandonable() -> Iterator[None]:
    """Let `checkpoint` end what the calling thread compiles."""
    _of_thread.abandonable = True
    try:
        yield
    finally:
        _of_thread.abandonable = False


def checkpoint() -> Callable[[], None]:
    """Return what raises `Abandoned`, in any thread, once the compilation of the calling thread is abandoned.

    The longest time between two calls of it is what a process may take to end.
    """
    return _check if getattr(_of_thread, "abandonable", False) else _go_on


def abandon_all() -> None:
    """Abandon what is compiled in the background, now and later."""
    _ending.set()


def abandoned() -> bool:
    """Return whether nothing is compiled in the background any more."""
    return _ending.is_set()


def _check() -> None:
    if _ending.is_set():
        raise Abandoned


def _go_on() -> None:
    pass
