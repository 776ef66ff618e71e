"""Python's bytecode of our sources, which installing a package writes, as that of all peers is there."""

from __future__ import annotations

import compileall
import functools
from pathlib import Path

_PACKAGES = ("fusion", "backends", "partition", "placement", "tuning")


@functools.cache
def write_bytecode() -> None:
    """Write it beside the sources, where it is not there and somebody may write: a checkout whose owner has set
    PYTHONDONTWRITEBYTECODE compiled 400 files at each start, half a second that no user of a package waits for."""
    root = Path(__file__).parents[1]
    for package in _PACKAGES:
        compileall.compile_dir(root / package, quiet=2)
