"""The CPUs of this process. Without TVM, which would bring 840 MB into a process that measures others."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from pathlib import Path

_NAMES = ("vendor_id", "cpu family", "model", "model name", "stepping", "CPU implementer", "CPU part", "CPU variant")
"""What Linux tells of a CPU, on x86 and on Arm."""
_TOPOLOGY = Path("/sys/devices/system/cpu")
_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


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
    return min(_quotas(), default=float("inf"))


def default_threads() -> int:
    """Return how many threads kernels take if nobody says: one for each core that the process gets the time of.

    With more than the quota the system would stop all of them for the rest of each period (of 100 ms).
    """
    return max(1, int(min(allowed_cores(), cpu_quota())))


def cpu_model() -> str:
    """Return what kind of CPU this machine has, and how many of them."""
    lines = _read(Path("/proc/cpuinfo")).splitlines()
    pairs = [tuple(map(str.strip, line.partition(":")[::2])) for line in lines]
    named = sorted({f"{name}={value}" for name, value in pairs if name in _NAMES})
    return " ".join([*named, platform.processor(), str(os.cpu_count())])


def _core_of(number: int) -> str:
    """Return what tells the core of a CPU from others: the CPUs in it."""
    return _read(_TOPOLOGY / f"cpu{number}" / "topology" / "thread_siblings_list") or str(number)


def _quotas() -> Iterator[float]:
    """Yield the quotas of the groups that this process is in, from its own outwards, in both versions of control
    groups."""
    for line in _read(_MEMBERSHIP).splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        roots = [_GROUPS] if not controllers else [_GROUPS / controllers, _GROUPS / "cpu"]
        if controllers and "cpu" not in controllers.split(","):
            continue
        for root in roots:
            # A container may see its own group as the root: the path then names what is not there.
            inner = Path(path.lstrip("/"))
            for group in (inner, *inner.parents):
                yield from _quota_of(root / group)


def _quota_of(group: Path) -> Iterator[float]:
    quota, period = (_read(group / name) for name in ("cpu.cfs_quota_us", "cpu.cfs_period_us"))
    said = (_read(group / "cpu.max") or f"{quota} {period}").split()
    if len(said) == 2 and all(part.isdigit() and int(part) for part in said):  # "max" and -1 are no quota
        yield int(said[0]) / int(said[1])


def _read(path: Path) -> str:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return ""
