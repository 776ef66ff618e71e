"""How much of the machine others used while something was timed: the first thing to look at when numbers jump."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

_STAT = Path("/proc/stat")
# Fields of the first line of /proc/stat (proc(5)); time stolen by the hypervisor counts as used by others.
_BUSY = ("user", "nice", "system", "idle", "iowait", "irq", "softirq", "steal")
_IDLE = ("idle", "iowait")
BUSY = 0.2
"""Share of all CPUs that others use at which a machine is busy."""
_GLANCE_S = 0.25
_PAUSE_S = 1.0


@dataclass
class Load:
    """What others did meanwhile.

    Attributes:
        others: Share of all CPUs, 0 to 1, used by other processes or other machines on the same host; 0 where unknown.
    """

    others: float = 0.0


@contextlib.contextmanager
def watch() -> Iterator[Load]:
    """Yield a load that is filled in when the block ends."""
    load = Load()
    busy, own, started = _busy_s(), time.process_time(), time.perf_counter()
    yield load
    capacity = (time.perf_counter() - started) * (os.cpu_count() or 1)
    load.others = max(0.0, (_busy_s() - busy) - (time.process_time() - own)) / capacity


def others_load() -> float:
    """Return the share of all CPUs that others use now, while this process waits."""
    with watch() as load:
        time.sleep(_GLANCE_S)
    return load.others


@dataclass
class QuietWait:
    """Waits until others leave the machine alone.

    Attributes:
        patience_s: That it has in all.
        check: Is called while it waits, and may raise.
        waited_s: What of it is gone.
    """

    patience_s: float
    check: Callable[[], None]
    waited_s: float = field(default=0.0, init=False)

    def wait(self) -> bool:
        """Wait; return whether the machine is busy still, and patience at its end."""
        while others_load() >= BUSY:
            self.check()
            started = time.perf_counter()
            if self.waited_s >= self.patience_s:
                return True
            time.sleep(_PAUSE_S)
            self.waited_s += time.perf_counter() - started
        return False


def _busy_s() -> float:
    """Return the CPU seconds that all processes have used since the machine started, or 0 where nobody counts them."""
    if not _STAT.exists():
        return 0.0
    ticks = _STAT.read_text().split(maxsplit=len(_BUSY) + 1)[1:]
    counted = zip(_BUSY, ticks, strict=False)
    return sum(int(value) for field, value in counted if field not in _IDLE) / os.sysconf("SC_CLK_TCK")
