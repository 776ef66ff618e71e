"""The CPUs of this process. Without TVM, which would bring 840 MB into a process that measures others."""

from __future__ import annotations

import os


def cpu_numbers() -> list[int]:
    """Return the system's numbers of the CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on (TVM's own default is half of the machine's)."""
    return len(cpu_numbers())
