"""The CPUs of this process. Without TVM, which would bring 840 MB into a process that measures others."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator, Sequence
from pathlib import Path

from fusion.system.control_groups import ReadText, own_groups, read_text

_NAMES = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "CPU variant")
"""What Linux tells of a CPU, on x86 and on Arm."""
_TOPOLOGY = Path("/sys/devices/system/cpu")


def cpu_numbers() -> list[int]:
    """Return the system's numbers of the CPUs this process may run on, ascending."""
    return sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))


def allowed_cpus() -> int:
    """Return how many CPUs this process may run on (TVM's own default is half of the machine's)."""
    return len(cpu_numbers())


def numbers_in(text: str) -> list[int]:
    """Return the numbers that Linux lists as "0-3,8"."""
    ranges = (part.partition("-") for part in text.split(",") if part)
    return [number for first, _, last in ranges for number in range(int(first), int(last or first) + 1)]


def allowed_cores(numbers: Sequence[int] | None = None, read: ReadText = read_text) -> int:
    """Return how many cores the CPUs of this process belong to, or those of these numbers: CPUs that share a core share
    its vector units, too.

    Args:
        read: Reads files of the system.
    """
    return len({_core_of(number, read) for number in (cpu_numbers() if numbers is None else numbers)})


def cpu_quota(read: ReadText = read_text) -> float:
    """Return how many CPUs' time the control groups of this process get: `docker run --cpus 1.5` says 1.5, though
    the process sees all CPUs of the machine; infinity where there is no quota.

    Args:
        read: Reads files of the system.
    """
    quotas = (quota for group in own_groups("cpu", read) for quota in _quota_of(group, read))
    return min(quotas, default=float("inf"))


def default_threads(numbers: Sequence[int] | None = None, read: ReadText = read_text) -> int:
    """Return how many threads kernels take if nobody says: one for each core that the process gets the time of.

    With more than the quota the system would stop all of them for the rest of each period (of 100 ms).

    Args:
        numbers: Of the CPUs that it may run on; None for those of this process.
        read: Reads files of the system: of another machine, where another function does.
    """
    return max(1, int(min(allowed_cores(numbers, read), cpu_quota(read))))


def cpu_model(read: ReadText = read_text) -> str:
    """Return what kind of CPU a machine has, and how many of them.

    Args:
        read: Reads files of its system: this machine's, unless another function does.
    """
    lines = read(Path("/proc/cpuinfo")).splitlines()
    pairs = [tuple(map(str.strip, line.partition(":")[::2])) for line in lines]
    named = sorted({f"{name}={value}" for name, value in pairs if name in _NAMES})
    count = sum(name == "processor" for name, _ in pairs)
    return " ".join([*named, "" if named else platform.processor(), str(count or os.cpu_count())])


def _core_of(number: int, read: ReadText) -> str:
    """Return what tells the core of a CPU from others: the CPUs in it."""
    return read(_TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list") or str(number)


def _quota_of(group: Path, read: ReadText) -> Iterator[float]:
    quota, period = (read(group / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    said = (read(group / "cpu.max") or f"{quota} {period}").split()
    if len(said) == 2 and all(part.isdigit() and int(part) for part in said):  # "max" and -1 are no quota
        yield int(said[0]) / int(said[1])
