"""Imports of the compiler, which a process can never end that was forked while another thread was in the middle of one.

Modules that the thread had begun have locks and states of its own, in Python and in TVM's libraries, and it does not
exist in the forked process: whoever imports them there waits forever. To take the locks anew is not enough. So a fork
waits until they are imported.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from fusion.errors import ResourceError
from fusion.system.collector import paused

_MOST_S = 10.0
"""So long a fork waits for imports of other threads: one may wait for the thread that forks."""
_LOOK_S = 0.002

_threads: dict[int, int] = {}
"""Those that are importing, each with how often."""
_cut_off = threading.Event()
"""Set in a process that was forked meanwhile."""


@contextmanager
def importing() -> Iterator[None]:
    """Import modules of the compiler inside, without looking for garbage.

    Raises:
        ResourceError: This process was forked while another thread was importing them.
    """
    if _cut_off.is_set():
        raise ResourceError(
            "this process cannot import the compiler",
            why="it was forked while another thread of its parent was importing it",
            hint="use fusion in the parent once, or wait for that thread, before it forks; or start processes by "
            'multiprocessing.get_context("spawn")',
        )
    thread = threading.get_ident()
    _threads[thread] = _threads.get(thread, 0) + 1
    try:
        with paused():
            yield
    finally:
        _threads[thread] -= 1
        if not _threads[thread]:
            del _threads[thread]


def _before_fork() -> None:
    own, until = threading.get_ident(), time.monotonic() + _MOST_S
    while _threads and own not in _threads and time.monotonic() < until:
        time.sleep(_LOOK_S)


def _after_fork() -> None:
    for thread in set(_threads) - {threading.get_ident()}:
        del _threads[thread]
        _cut_off.set()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
