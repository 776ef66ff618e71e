"""Processes that end with all that they have started, where the system has groups of processes; Windows has none."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from subprocess import Popen
from typing import Any

HAS_GROUPS = hasattr(os, "killpg")


def kill_group(process: Popen[Any]) -> None:
    """Kill a process that was started in a session of its own, and what it has started, and wait for its end."""
    if HAS_GROUPS:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)  # the group has the number of the process that began the session
    process.kill()
    process.wait()
