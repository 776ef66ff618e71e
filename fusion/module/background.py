"""Compiles in the background: one queue and one thread for the whole process, as one model is compiled at a time, and
one of each for what nobody waits for.

A thread ends when nothing is left to do. When the process ends, every job ends at its next checkpoint; what nobody
waits for does so as well when somebody waits for a compilation: it would hold the compiler at its low priority.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable

from fusion.system.abandon import abandon_all, abandonable, abandoned, gives_way_now
from fusion.system.forks import Lock

Job = Callable[[], None]

_SLICE_S, _SLICES = 0.1, 200
"""So long, and so often, the end of the process waits at most: a thread in the middle of native code would crash it. By
slices, as one long wait would be over where the whole process was stopped meanwhile, the thread with it."""


class _Queue:
    """The jobs that wait, and the thread that does one after the other."""

    def __init__(self, nice: int) -> None:
        """`nice` is what the priority of the thread is lowered by, where the system lets threads have one each."""
        self._nice = nice
        self._jobs: deque[Job] = deque()
        self._later: deque[Job] = deque()
        self._thread: threading.Thread | None = None
        self._lock = Lock(self._forget_other_threads)

    def add(self, job: Job) -> bool:
        """Queue `job`, which raises nothing; returns False where the process ends or can start no thread."""
        with self._lock:
            if abandoned():
                return False
            self._jobs.append(job)
            if self._thread is None or not self._thread.is_alive():  # an interrupt came before it started
                self._thread = threading.Thread(target=self._work, name="fusion-compile", daemon=True)
                try:
                    self._thread.start()
                except RuntimeError:  # the system's limit
                    self._jobs.pop()
                    self._thread = None
                    return False
        return True

    def end(self) -> None:
        """Abandon the jobs, and wait until they have noticed."""
        abandon_all()
        thread = self._thread
        if thread is None:
            return
        try:
            for _ in range(_SLICES):
                thread.join(_SLICE_S)
                if not thread.is_alive():
                    break
        except KeyboardInterrupt:
            _die_of_interrupt()

    def _work(self) -> None:
        if self._nice and sys.platform == "linux":  # elsewhere it is the process's
            with contextlib.suppress(OSError):
                os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), self._nice)
        with abandonable(gives_way=bool(self._nice)):
            while (job := self._next()) is not None:
                job()
                del job  # and what it compiles for

    def add_later(self, job: Job) -> None:
        """Have the thread, which calls this, do `job` once nobody takes precedence; jobs that are queued meanwhile come
        first, as they may be waited for."""
        with self._lock:
            self._later.append(job)

    def _next(self) -> Job | None:
        while True:
            with self._lock:
                if self._jobs:
                    return self._jobs.popleft()
                if not self._later:
                    self._thread = None
                    return None
            if not gives_way_now():
                return self._later.popleft()

    def _forget_other_threads(self) -> None:
        self._jobs.clear()
        self._later.clear()
        self._thread = None


def _die_of_interrupt() -> None:
    """End the process as an interrupt does that nobody handles: no thread in native code meets an interpreter that is
    half gone."""
    for file in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed, or whatever a file of the user's own raises
            file.flush()
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    signal.raise_signal(signal.SIGINT)


_queue, _idle = _Queue(nice=0), _Queue(nice=10)
submit, submit_idle, resume_idle = _queue.add, _idle.add, _idle.add_later
# Before the pools of concurrent.futures, which generate code, wait for theirs: those of atexit come later.
for _each in (_queue, _idle):
    getattr(threading, "_register_atexit", atexit.register)(_each.end)
