"""Processes that find no PyTorch: put before the others, this folder has a module of that name that is none."""

from __future__ import annotations

import os
from pathlib import Path


def environment() -> dict[str, str]:
    """Return the variables of such a process, and of those that it starts."""
    before = os.environ.get("PYTHONPATH")
    folders = [str(Path(__file__).parent), *([before] if before else [])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(folders)}
