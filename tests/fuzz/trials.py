"""Answers of a worker that test the worker: they crash, hang, take memory or touch what they must not."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable
from functools import lru_cache

import fusion.tensors
from tests.fuzz import guard
from tests.fuzz.case import Outcome
from tests.fuzz.worker import Job


def misbehave(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Crash, hang or take memory, as the seed of the job says."""
    stage("fusion")
    if job.seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if job.seed == 2:
        time.sleep(60)
    if job.seed == 3:
        try:
            bytearray(1 << 30)
        except MemoryError:
            return Outcome(job.kind, job.seed, "memory")
    return Outcome(job.kind, job.seed, "same")


def touch(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Write to guarded memory at the offset that the seed says: 100 bytes from Python, or 100 from posix_memalign."""
    _install(job.guard)
    stage("fusion")
    library = ctypes.CDLL(None)
    ctypes.c_int.in_dll(library, "guard_side").value = guard.SIDES[job.guard]
    block = ctypes.c_void_p()
    library.posix_memalign(ctypes.byref(block), 64, 100)
    buffer = fusion.tensors.allocate(100)
    assert block.value is not None
    for address in (block.value, buffer.ctypes.data):
        ctypes.c_uint8.from_address(address + job.seed).value = 1
    return Outcome(job.kind, job.seed, "same")


@lru_cache
def _install(side: str) -> None:
    guard.install(side)
