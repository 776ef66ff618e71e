"""The CPUs of this process. Without TVM, which would bring 840 MB into a process that measures others."""

from __future__ import annotations

import os
import platform
from pathlib import Path


def cpu_numbers() -> list[int]:
    """Return the system's numbers of the CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on (TVM's own default is half of the machine's)."""
    return len(cpu_numbers())


_NAMES = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "CPU variant")
"""What Linux tells of a CPU, on x86 and on Arm."""


def cpu_model() -> str:
    """Return what kind of CPU this machine has, and how many of them."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        lines = []
    pairs = [tuple(map(str.strip, line.partition(":")[::2])) for line in lines]
    named = sorted({f"{name}={value}" for name, value in pairs if name in _NAMES})
    return " ".join([*named, platform.processor(), str(os.cpu_count())])
