"""TVM's worker threads: as many as asked for, on the CPUs this process may use."""

from __future__ import annotations

import os
import threading

from fusion.runtime import tvm_ffi

_SHARE_ALL_CORES = -3
"""threading::ThreadGroup::AffinityMode of TVM: every worker may run on each CPU of the list."""

_configured = threading.local()
_configure = tvm_ffi.get_global_func("runtime.config_threadpool")


def use_threads(count: int) -> None:
    """Make kernels that the calling thread starts run on `count` threads.

    TVM keeps one pool for each thread that runs kernels. Left alone, it starts half as many workers as there are CPUs
    and pins them, the caller too, to the first ones, whether or not the process may use those.
    """
    if getattr(_configured, "count", 0) == count:
        return
    allowed = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else list(range(os.cpu_count() or 1))
    # The length of the list is also the largest number of workers.
    cpus = [str(allowed[index % len(allowed)]) for index in range(max(count, len(allowed)))]
    _configure(_SHARE_ALL_CORES, count, cpus)
    _configured.count = count
