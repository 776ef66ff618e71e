"""Processes that end with all that they have started, where the system has groups of processes; Windows has none."""

from __future__ import annotations

import os
import select
import signal
from contextlib import suppress
from subprocess import Popen, TimeoutExpired
from typing import Any

HAS_GROUPS = hasattr(os, "killpg")


def wait_for_end(process: Popen[Any], seconds: float) -> int:
    """Return the exit status of a process as soon as it has ended.

    `Popen.wait` with a limit looks again after up to 50 ms, several times what a linker takes; where the system has
    descriptors of processes, one of these is waited for.

    Raises:
        subprocess.TimeoutExpired: It did not end within so many `seconds`.
    """
    if not hasattr(os, "pidfd_open"):
        return process.wait(seconds)
    try:
        descriptor = os.pidfd_open(process.pid)
    except OSError:  # a system without them, or a sandbox that forbids it
        return process.wait(seconds)
    try:
        end = select.poll()
        end.register(descriptor, select.POLLIN)
        if not end.poll(seconds * 1e3):
            raise TimeoutExpired(process.args, seconds)
    finally:
        os.close(descriptor)
    return process.wait()


def kill_group(process: Popen[Any]) -> None:
    """Kill a process that was started in a session of its own, and what it has started, and wait for its end."""
    if HAS_GROUPS:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # the group has the number of the process that began the session
    process.kill()
    process.wait()
