"""The threads of OpenMP that run a call's loops: how many, how long they wait, and on which CPUs they are woken."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from ctypes import c_char_p, c_int, c_void_p

from fusion.system.cpus import allowed_cpus

_WAIT_MS = 1
"""How long a thread waits for the next primitive of a call before it sleeps: woken for each of them, MobileNetV2 takes
7.9 ms in place of 5.2 (two threads of an Emerald Rapids)."""
_FEW_CPUS = 8
"""With more it was not measured what barring gains, as for the workers of `fusion/pool/launch.c`."""


class _Ident(ctypes.Structure):
    """`ident_t`: a place in a source, as compilers tell it to OpenMP."""

    _fields_ = (("_1", c_int), ("flags", c_int), ("_2", c_int), ("_3", c_int), ("place", c_char_p))


_PLACE = _Ident(0, 2, 0, 0, b";unknown;unknown;0;0;;")
_TASK = ctypes.CFUNCTYPE(None, c_void_p, c_void_p)
"""What each thread of a team runs: it gets the addresses of two numbers of it."""


class _OfCaller(threading.local):
    """What is known of the teams of the calling thread.

    Attributes:
        workers: The system's numbers of the others in it, by process and number of threads.
    """

    def __init__(self) -> None:
        self.workers: dict[tuple[int, int], tuple[int, ...]] = {}


class OpenMpThreads:
    """The teams of Intel's OpenMP; each thread that calls has one of its own."""

    def __init__(self, openmp: ctypes.CDLL) -> None:
        self._openmp = openmp
        self._libc = ctypes.CDLL(None)
        self._nothing = ctypes.cast(openmp.omp_get_thread_num, c_void_p)
        self._of_caller = _OfCaller()

    @contextmanager
    def team(self, threads: int) -> Iterator[None]:
        """Let what this thread runs meanwhile run on so many, which wait for the next primitive, and sleep at the end.

        Primitives are made for the number of threads that runs them, too.
        """
        before = self._openmp.omp_get_max_threads(), self._openmp.kmp_get_blocktime()
        self._openmp.omp_set_num_threads(threads)
        self._openmp.kmp_set_blocktime(_WAIT_MS)
        try:
            with self._barred(threads):
                yield
        finally:
            self._openmp.omp_set_num_threads(before[0])
            self._openmp.kmp_set_blocktime(before[1])

    @contextmanager
    def _barred(self, threads: int) -> Iterator[None]:
        """Bar the other threads of the team from the caller's CPU until they sleep.

        The scheduler wakes a thread where its waker runs unless an idle CPU shares a cache with that, and on virtual
        machines none may. A worker of OpenMP that is woken beside its caller, which does not sleep, stays there: a call
        takes longer on two threads than on one.
        """
        left: dict[int, tuple[set[int], set[int]]] = {}
        try:
            if threads > 1 and allowed_cpus() <= _FEW_CPUS:
                cpu = self._libc.sched_getcpu()
                for worker in self._workers(threads):
                    with suppress(OSError):  # it is gone, or nobody may say where it runs
                        allowed = os.sched_getaffinity(worker)
                        others = allowed - {cpu}
                        if others and others != allowed:
                            left[worker] = allowed, others  # before: an interrupt may come between
                            os.sched_setaffinity(worker, others)
            yield
        finally:
            # A thread waits as long as was set when it was last given work: the last primitive may run on fewer.
            self._openmp.kmp_set_blocktime(0)
            self._run_by_all(self._nothing)
            for worker, (allowed, others) in left.items():
                with suppress(OSError):
                    if os.sched_getaffinity(worker) == others:  # nobody else has said since where it may run
                        os.sched_setaffinity(worker, allowed)

    def _workers(self, threads: int) -> tuple[int, ...]:
        """Return the system's numbers of the team of the calling thread without itself."""
        known = self._of_caller.workers
        key = os.getpid(), threads  # none of them is in a forked process
        if key not in known:
            found: list[int] = []
            note = _TASK(lambda *_: found.append(threading.get_native_id()))
            self._run_by_all(ctypes.cast(note, c_void_p))
            known[key] = tuple(each for each in found if each != threading.get_native_id())
        return known[key]

    def _run_by_all(self, function: c_void_p) -> None:
        """Have each thread of the team run a function."""
        getattr(self._openmp, "__kmpc_fork_call")(ctypes.byref(_PLACE), 0, function)
