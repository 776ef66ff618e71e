"""How much CPU time a process takes that has nothing to do."""

from __future__ import annotations

import time
from collections.abc import Callable

_NAPS = 5


def busy_nap(work: Callable[[], object], seconds: float, settle: float, enough: float) -> float:
    """Return the CPU seconds of a nap behind `work`: the least of five, or the first below `enough`.

    Threads that spin do so in each of them; what an earlier test left, or a slow machine, is over after some.

    Args:
        work: Called before each nap.
        seconds: How long a nap is.
        settle: Seconds between the work and the nap.
    """
    least = float("inf")
    for _ in range(_NAPS):
        work()
        time.sleep(settle)
        before = time.process_time()
        time.sleep(seconds)
        least = min(least, time.process_time() - before)
        if least < enough:
            break
    return least
