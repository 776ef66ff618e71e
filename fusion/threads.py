"""TVM's own worker threads, for kernels that do not run on `fusion.pool`: as many as asked for, on our CPUs."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from fusion.errors import OptionError
from fusion.runtime import tvm_ffi
from fusion.system.cpus import cpu_numbers

T = TypeVar("T")
_SHARE_ALL_CORES = -3
"""threading::ThreadGroup::AffinityMode of TVM: every worker may run on each CPU of the list."""

_configured = threading.local()


class _Forked(threading.local):
    substitute: ThreadPoolExecutor | None = None  # a default costs a failed look-up (0.4 us) less than getattr


_forked = _Forked()
_configure = tvm_ffi.get_global_func("runtime.config_threadpool")


def _after_fork() -> None:
    """Note that this thread's pool is lost: its workers are not in the child, and kernels would wait for them."""
    _forked.substitute = ThreadPoolExecutor(1)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def on_live_pool(call: Callable[..., T], *args: Any) -> T:
    """Return `call(*args)`; in the thread that came out of a fork, another one makes the call, with a pool of its
    own."""
    substitute = _forked.substitute
    return call(*args) if substitute is None else substitute.submit(call, *args).result()


def require_threads(count: int) -> None:
    """Raise unless so many threads can be started, by starting them: the system has several limits, and where TVM meets
    one, it ends the process. As many as there are CPUs are taken for granted.

    Raises:
        OptionError: They cannot.
    """
    if count <= len(cpu_numbers()):
        return
    done = threading.Event()
    started: list[threading.Thread] = []
    try:
        for _ in range(count):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            started.append(thread)
    except (RuntimeError, MemoryError) as error:
        raise OptionError(
            f"threads={count} is more than the system lets this process start",
            why=f"there was no room after {len(started)}: {error}",
            hint=f"use {len(cpu_numbers())}, as many as this process may use CPUs, or raise the limits (ulimit -a)",
        ) from error
    finally:
        done.set()
        for thread in started:
            thread.join()


def use_threads(count: int) -> None:
    """Make kernels that the calling thread starts run on `count` threads.

    TVM keeps one pool for each thread that runs kernels. Left alone, it starts half as many workers as there are CPUs
    and pins them, the caller too, to the first ones, whether or not the process may use those.

    Raises:
        OptionError: The system does not let this process have so many threads.
    """
    if getattr(_configured, "count", 0) == count:
        return
    require_threads(count)
    allowed = cpu_numbers()
    # The length of the list is also the largest number of workers.
    cpus = [str(allowed[index % len(allowed)]) for index in range(max(count, len(allowed)))]
    _configure(_SHARE_ALL_CORES, count, cpus)
    _configured.count = count
