"""Which stage a compilation is in, and how long each took: what `--timing` and the progress of commands show."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

Names = tuple[str, ...]
"""Of a stage: the names of those around it, and its own."""


@dataclass
class Time:
    """What a stage took, all times together that it was entered.

    Attributes:
        seconds: From entering to leaving; of a stage that several threads are in at a time, the sum of theirs.
        cpu_seconds: CPU time of the threads that entered it, and of others in stages inside it.
        count: How often it was entered.
    """

    seconds: float = 0.0
    cpu_seconds: float = 0.0
    count: int = 0


@dataclass
class Stages:
    """The stages of one compilation.

    Attributes:
        times: Of each stage that was left, in the order they were entered first.
        now: The outermost stage that was entered last.
    """

    times: dict[Names, Time] = field(default_factory=dict, init=False)
    now: str = field(default="", init=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False, init=False)

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Take the times of the stages that the calling thread enters inside, and those that copy its context."""
        token = _watched.set((self, (), threading.get_ident()))
        try:
            yield
        finally:
            _watched.reset(token)

    @contextmanager
    def inside(self, path: Names, *, elsewhere: bool = False) -> Iterator[None]:
        """Take the time of one stage; `elsewhere` says that another thread entered those around it, whose CPU time is
        that thread's and this one's."""
        with self._lock:
            around = [self.times.setdefault(path[:depth], Time()) for depth in range(1, len(path))]
            taken = self.times.setdefault(path, Time())
            self.now = self.now if elsewhere else path[0]
        started, started_cpu = time.perf_counter(), time.thread_time()
        try:
            yield
        finally:
            seconds, cpu_seconds = time.perf_counter() - started, time.thread_time() - started_cpu
            with self._lock:
                taken.seconds += seconds
                taken.cpu_seconds += cpu_seconds
                taken.count += 1
                for each in around if elsewhere else ():
                    each.cpu_seconds += cpu_seconds


_watched: ContextVar[tuple[Stages, Names, int] | None] = ContextVar("stages", default=None)
"""With the stages around, and the thread that entered the innermost of them."""


@contextmanager
def stage(name: str) -> Iterator[None]:
    """Say that what is done inside is the stage `name`, to whoever watches this thread."""
    watched = _watched.get()
    if watched is None:
        yield
        return
    stages, around, entered_by = watched
    path, thread = (*around, name), threading.get_ident()
    token = _watched.set((stages, path, thread))
    try:
        with stages.inside(path, elsewhere=thread != entered_by):
            yield
    finally:
        _watched.reset(token)


@contextmanager
def part_of(name: str) -> Iterator[None]:
    """Say that stages inside belong to the stage `name`, which another thread enters, or will: its CPU time is theirs
    too, the time from entering to leaving it is not."""
    watched = _watched.get()
    if watched is None:
        yield
        return
    stages, around, entered_by = watched
    token = _watched.set((stages, (*around, name), entered_by))
    try:
        yield
    finally:
        _watched.reset(token)
