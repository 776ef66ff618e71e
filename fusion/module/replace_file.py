"""Writes a file whole or not at all: another one beside it takes its name at the end.

What a killed process leaves of it, the next one that writes a file of that name removes: a process holds a lock on what
it writes.
"""

from __future__ import annotations

import os
import re
import stat
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from fusion.system.control_groups import read_text
from fusion.system.file_locks import HAS_LOCKS, try_lock, wait_for_lock

_MOST_NAME = 60
"""Characters of the name that the other begins with: a name may have 255 bytes."""


def replace_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Put what `write` writes in the place of `path`.

    Raises:
        OSError, ValueError: The system refuses, or there is no such path.
    """
    prefix = f".{path.name[:_MOST_NAME]}."
    _remove_abandoned(path.parent, prefix)
    handle, temporary = _make(path.parent, prefix)
    try:
        # The lock lasts until the file has its name; without locks, it must be closed to get another.
        with os.fdopen(handle, "wb", closefd=not HAS_LOCKS) as file:
            write(file)
            file.flush()
            os.fsync(handle)
        os.chmod(temporary, 0o666 & ~_umask())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    finally:
        if HAS_LOCKS:
            os.close(handle)


def _make(folder: Path, prefix: str) -> tuple[int, Path]:
    """Return a new file that this process holds a lock on, opened, and its path."""
    while True:
        handle, name = tempfile.mkstemp(prefix=prefix, dir=folder)
        with suppress(OSError):  # on a file system without locks
            wait_for_lock(handle)
        if not HAS_LOCKS or os.path.exists(name):
            return handle, Path(name)
        os.close(handle)  # another process found it before it was locked, and took it for abandoned


def _remove_abandoned(folder: Path, prefix: str) -> None:
    """Remove the files of this user in `folder` that begin so, as `mkstemp` names them, and that no process holds."""
    if not HAS_LOCKS:
        return
    made = re.compile(re.escape(prefix) + r"[a-z0-9_]{8}")
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if made.fullmatch(entry.name):
                with suppress(OSError):  # another process may remove it too
                    _remove_if_abandoned(Path(entry.path))


def _remove_if_abandoned(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid() and try_lock(handle):
            path.unlink()
    finally:
        os.close(handle)


def _umask() -> int:
    said = re.search(r"^Umask:\s*([0-7]+)$", read_text(Path("/proc/self/status")), re.MULTILINE)
    if said:
        return int(said[1], 8)
    # Elsewhere it can only be read by setting it, and files that other threads make meanwhile are everyone's.
    mask = os.umask(0)
    os.umask(mask)
    return mask
