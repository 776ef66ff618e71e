"""The limits of the machine, measured in a process of their own."""

from __future__ import annotations

from backends.machine_limits import MachineLimits
from bench.peers import OURS
from bench.remote import Worker

_DEADLINE_S = 120.0


def measure_machine(threads: int) -> MachineLimits:
    """Return what the machine can do with this many threads.

    Raises:
        EngineError: The measurement failed.
    """
    with Worker(OURS, threads) as worker:
        limits: MachineLimits = worker.ask(_DEADLINE_S, "limits", threads)
    return limits
