"""The CPUs of this process. Without TVM, which would bring 840 MB into a process that measures others."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

from fusion.control_groups import own_groups, read_text

_NAMES = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "CPU variant")
"""What Linux tells of a CPU, on x86 and on Arm."""
_TOPOLOGY = Path("/sys/devices/system/cpu")


def cpu_numbers() -> list[int]:
    """Return the system's numbers of the CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on (TVM's own default is half of the machine's)."""
    return len(cpu_numbers())


def allowed_cores() -> int:
    """Return how many cores these CPUs belong to: CPUs that share a core share its vector units, too."""
    return len({_core_of(number) for number in cpu_numbers()})


def cpu_quota() -> float:
    """Return how many CPUs' time the control groups of this process get: `docker run --cpus 1.5` says 1.5, though
    the process sees all CPUs of the machine; infinity where there is no quota."""
    return min((quota for group in own_groups("cpu") for quota in _quota_of(group)), default=float("inf"))


def default_threads() -> int:
    """Return how many threads kernels take if nobody says: one for each core that the process gets the time of.

    With more than the quota the system would stop all of them for the rest of each period (of 100 ms).
    """
    return max(1, int(min(allowed_cores(), cpu_quota())))


def cpu_model() -> str:
    """Return what kind of CPU this machine has, and how many of them."""
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    pairs = [tuple(map(str.strip, line.partition(":")[::2])) for line in lines]
    named = sorted({f"{name}={value}" for name, value in pairs if name in _NAMES})
    return " ".join([*named, platform.processor(), str(os.cpu_count())])


def _core_of(number: int) -> str:
    """Return what tells the core of a CPU from others: the CPUs in it."""
    return read_text(_TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list") or str(number)


def _quota_of(group: Path) -> Iterator[float]:
    quota, period = (read_text(group / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    said = (read_text(group / "cpu.max") or f"{quota} {period}").split()
    if len(said) == 2 and all(part.isdigit() and int(part) for part in said):  # "max" and -1 are no quota
        yield int(said[0]) / int(said[1])
