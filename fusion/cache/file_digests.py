"""What was read of large files, for as long as they stay as they were: a model is summed up once, not in each process.

A state tells a file from what it was before, as git's index does: size, number, and when it was written to last.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from fusion.cache.place import DiskCache
from fusion.cache.store import Store
from fusion.cache.texts import find_text, keep_text

_LEAST_BYTES = 16 << 20
"""Of a file: smaller ones are read in less time than an entry is worth."""
_SETTLED_NS = 2_000_000_000
"""What was written to so shortly before may be written to once more at what the system calls the same time."""


@dataclass(frozen=True)
class FileState:
    """A file as it was when it was read: writing to it, or putting another in its place, changes one of the numbers."""

    path: Path
    size: int
    changed: int
    number: int

    @staticmethod
    def of(path: Path) -> FileState:
        """Return the state of a file.

        Raises:
            OSError: There is none.
        """
        status = os.stat(path)
        return FileState(path, status.st_size, max(status.st_mtime_ns, status.st_ctime_ns), status.st_ino)

    def current(self) -> bool:
        """Return whether the file is still so."""
        try:
            return FileState.of(self.path) == self
        except OSError:
            return False


def sum_up(state: FileState, read: Callable[[Path], str], place: DiskCache | None) -> str:
    """Return what `read` returns for the file of `state`, or returned when it was in that state before: it is kept in
    the cache at `place`."""
    begun = time.time_ns()
    if place is None or state.size < _LEAST_BYTES or begun - state.changed < _SETTLED_NS:
        return read(state.path)
    store, name = Store(place), _name(state)
    known = find_text(store, name)
    if known is not None:
        return known
    found = read(state.path)
    if state.current():
        keep_text(store, name, found)
    return found


def _name(state: FileState) -> str:
    text = f"{os.path.realpath(state.path)!r} {state.size} {state.changed} {state.number}"
    return f"{hashlib.sha256(text.encode(errors='surrogatepass')).hexdigest()}.digest"
