"""Processes that compute without end."""

from __future__ import annotations

import contextlib
import subprocess
import sys
from collections.abc import Iterator

_COMPUTE = """
import os
parent = os.getppid()
while os.getppid() == parent:  # it may be killed
    for _ in range(1_000_000):
        pass
"""


@contextlib.contextmanager
def busy_processes(count: int) -> Iterator[None]:
    """Have `count` processes that each take all of a CPU they can get, until the block ends."""
    processes = [subprocess.Popen([sys.executable, "-c", _COMPUTE]) for _ in range(count)]
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.wait()
