"""Shares the CPUs among the runs that are under way in the process.

On two CPUs, two callers that run on two threads each do 1.2 times what one does, on one thread each 1.4 to 1.9 times.
"""

from __future__ import annotations

import os
import threading

from fusion.system.cpus import default_threads

_under_way: dict[int, None] = {}
"""The threads that are in a run. One that an interrupt leaves here is right again after its next run."""
_cpus = default_threads()


def enter() -> int:
    """Note that the calling thread is in a run; return how many threads that should take at most, 0 for any number."""
    _under_way[threading.get_ident()] = None
    runs = len(_under_way)
    return 0 if runs == 1 else max(1, _cpus // runs)


def leave() -> None:
    """Note that it is in none."""
    _under_way.pop(threading.get_ident(), None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_under_way.clear)
