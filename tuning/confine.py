"""What candidates cannot do to the machine: write where answers are read, leave core files, take all memory, or run on
when nobody waits for them."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]

_GROWTH = 2 << 30
"""Bytes that candidates may take beside the tensors of an experiment: kernels of the zoo take 50 MB at most."""
_STATUS = Path("/proc/self/status")
_DATA = "VmData:"
_SET_PARENT_DEATH_SIGNAL = 1
"""Of prctl(2)."""


def keep_output() -> None:
    """Leave standard output to what Python prints: what kernels write there goes nowhere. No core files are left."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_CORE)
        resource.setrlimit(resource.RLIMIT_CORE, (0, most))
    number = sys.stdout.fileno()
    kept = os.fdopen(os.dup(number), "w")
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, number)
    os.close(nowhere)
    sys.stdout = kept


def end_with_parent() -> None:
    """Have the system end this process when the thread that started it has ended, also by SIGKILL, where it does so."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL)


@contextmanager
def limited_growth() -> Iterator[None]:
    """Refuse memory in the block to whoever asks for much more than the process has, where the system counts that."""
    if resource is None or not _STATUS.exists():
        yield
        return
    before = resource.getrlimit(resource.RLIMIT_DATA)
    wanted = _data_bytes() + _GROWTH
    soft = wanted if before[0] == resource.RLIM_INFINITY else min(wanted, before[0])
    resource.setrlimit(resource.RLIMIT_DATA, (soft, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, before)


def _data_bytes() -> int:
    line = next(line for line in _STATUS.read_text().splitlines() if line.startswith(_DATA))
    return int(line.split()[1]) << 10
