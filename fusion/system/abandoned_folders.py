"""Folders for temporary files whose process was killed: the next process that makes one removes them.

A process holds a lock on a file in each folder that it makes.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from fusion.system.file_locks import HAS_LOCKS, try_lock

PREFIX = "fusion-"
"""How the names of such folders begin."""

_LOCK = ".held"


@contextmanager
def held(folder: Path) -> Iterator[None]:
    """Keep other processes from removing `folder`, which this one has made and removes before the end."""
    # The file has its name once it is locked: under that, nobody ever finds it with its process alive and no lock.
    nameless = folder / f"{_LOCK}-soon"
    handle = os.open(nameless, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        if try_lock(handle):
            nameless.rename(folder / _LOCK)
        yield
    finally:
        os.close(handle)


@cache
def remove_abandoned(place: Path) -> None:
    """Remove this user's folders in `place` that no process holds, once in a process; those it cannot, it leaves."""
    if not HAS_LOCKS:
        return
    with suppress(OSError), os.scandir(place) as entries:
        for entry in entries:
            if entry.name.startswith(PREFIX):
                with suppress(OSError):  # another process may remove it too
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(folder: Path) -> None:
    """Remove `folder` unless it is another user's, of an older fusion, which locked nothing, or held."""
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        return
    handle = os.open(folder / _LOCK, os.O_RDWR | os.O_NOFOLLOW)
    try:
        if try_lock(handle) and os.path.samestat(os.fstat(handle), os.stat(folder / _LOCK)):
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        os.close(handle)
