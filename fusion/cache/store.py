"""A folder of files that any number of processes read, write and delete at a time, without a lock.

A file is complete when it has its name: it is written under another one and renamed. Who has opened or mapped it keeps
what it had when it is replaced or deleted. The time of its last change is that of its last use.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import re
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from fusion.cache.place import DiskCache
from fusion.system.files import open_file

_TEMPORARY = ".part-"
_NAMES = re.compile(rf"[0-9a-f]{{64}}\.\w+|{re.escape(_TEMPORARY)}\w+")
"""Of our files: a user may have named a folder with others in it."""
_ABANDONED_SECONDS = 600.0
"""A file that nobody has written to for so long was left by a process that was ended."""
_OTHERS = stat.S_IWGRP | stat.S_IWOTH
_log = logging.getLogger("fusion.cache")


@dataclass(frozen=True)
class Entry:
    """A file of the cache.

    Attributes:
        path: Where it is.
        size: Bytes.
        used: When it was used last, as `time.time` tells it.
    """

    path: Path
    size: int
    used: float

    @property
    def complete(self) -> bool:
        """Whether it is more than what a process is writing, or was when it was ended."""
        return not self.path.name.startswith(_TEMPORARY)


@dataclass(frozen=True)
class Store:
    """The files of a `DiskCache`. What the system refuses is no error: there is nothing to read, or nothing is kept.

    A folder or a file of another user, or that others may write to, is refused too: entries hold machine code.
    """

    place: DiskCache

    def refusal(self) -> str:
        """Return why the folder is not used; "" where it is, or does not exist yet."""
        try:
            status = os.stat(self.place.folder)
        except FileNotFoundError:
            return ""
        except OSError as error:
            return f"{self.place.folder}: {error.strerror}"
        reason = "" if stat.S_ISDIR(status.st_mode) else "it is no folder"
        reason = reason or _not_ours(status)
        return f"{self.place.folder}: {reason}" if reason else ""

    def make(self) -> str:
        """Make the folder where there is none, and return why it is not used; "" where it is."""
        reason = self.refusal()
        if reason:
            return reason
        try:
            self._make_folder()
        except OSError as error:
            return f"{self.place.folder} cannot be made: {error.strerror}"
        return ""

    def open(self, name: str) -> BinaryIO | None:
        """Return the entry `name`, opened, and note that it was used; None where there is none."""
        if not self._usable():
            return None
        path = self.place.folder / name
        try:
            file = open_file(path)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.info("cannot read %s: %s", path, error)
            return None
        reason = _not_ours(os.fstat(file.fileno()))
        if reason:
            file.close()
            _warn(f"{path} is not used: {reason}")
            return None
        with contextlib.suppress(OSError):  # of a disk that is read-only
            os.utime(path)
        return file

    def open_to_write(self, name: str) -> int | None:
        """Return a handle of the entry `name`, to read and write, made where there is none; None where the folder or
        what has the name there is refused: no link is followed, and only a file is waited for."""
        if not self._usable():
            return None
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
        path = self.place.folder / name
        try:
            handle = os.open(path, flags, 0o600)
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                _log.info("cannot write %s: %s", path, error)
            return None
        status = os.fstat(handle)
        reason = _not_ours(status) if stat.S_ISREG(status.st_mode) else "it is no file"
        if reason:
            os.close(handle)
            _warn(f"{path} is not used: {reason}")
            return None
        return handle

    def read(self, name: str) -> bytes | None:
        """Return the bytes of the entry `name`; None where there is none, or it cannot be read."""
        file = self.open(name)
        if file is None:
            return None
        try:
            with file:
                return file.read()
        except OSError as error:
            _log.info("cannot read %s: %s", name, error)
            return None

    def drop(self, name: str, why: str) -> None:
        """Delete the entry `name`, which is damaged."""
        _log.info("the entry %s is damaged and is made anew: %s", name, why)
        with contextlib.suppress(OSError):
            (self.place.folder / name).unlink()

    def write(
        self, name: str, size: int, write: Callable[[BinaryIO], object], *, make_room: bool = True
    ) -> bool:
        """Make an entry of what `write` writes, about `size` bytes, and return whether there is one now.

        Args:
            make_room: Whether to delete others for it, those first that were not used for longest; otherwise
                `make_room` is to be called once all is written.
        """
        if size > self.place.most_bytes:
            _log.info("%s is not kept: it has %d bytes, and the cache may have %d", name, size, self.place.most_bytes)
            return False
        reason = self.make()
        if reason:
            _warn(f"the cache is not used: {reason}")
            return False
        try:
            self._write(name, write)
        except OSError as error:
            _log.info("%s is not kept: %s", name, error)
            return False
        if make_room:
            self.make_room()
        return True

    def _write(self, name: str, write: Callable[[BinaryIO], object]) -> None:
        handle, temporary = tempfile.mkstemp(prefix=_TEMPORARY, dir=self.place.folder)  # for this user alone
        try:
            with os.fdopen(handle, "wb") as file:
                write(file)
            # Without fsync: what a machine loses when its power fails is found by the checksums.
            os.replace(temporary, self.place.folder / name)
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(temporary)
            raise

    def entries(self) -> list[Entry]:
        """Return the files, unfinished ones too, the one used last at the end."""
        return sorted(self._scan(), key=lambda entry: entry.used)

    def clear(self) -> list[Entry]:
        """Delete all files, those that are being written too, and return them.

        Raises:
            OSError: The system refuses.
        """
        entries = self.entries()
        for entry in entries:
            entry.path.unlink(missing_ok=True)
        return entries

    def _scan(self) -> Iterator[Entry]:
        with contextlib.suppress(OSError), os.scandir(self.place.folder) as found:
            for item in found:
                with contextlib.suppress(OSError):  # another process has deleted it
                    status = item.stat(follow_symlinks=False)
                    if stat.S_ISREG(status.st_mode) and _NAMES.fullmatch(item.name):
                        yield Entry(Path(item.path), status.st_size, status.st_mtime)

    def make_room(self) -> None:
        """Delete entries until the others fit."""
        entries = self.entries()
        total = sum(entry.size for entry in entries)
        now = time.time()
        for entry in entries:
            abandoned = not entry.complete and now - entry.used > _ABANDONED_SECONDS
            if not abandoned and (total <= self.place.most_bytes or not entry.complete):
                continue
            with contextlib.suppress(OSError):
                entry.path.unlink(missing_ok=True)  # another process may make room too
                total -= entry.size

    def _make_folder(self) -> None:
        self.place.folder.parent.mkdir(parents=True, exist_ok=True)
        self.place.folder.mkdir(mode=0o700, exist_ok=True)

    def _usable(self) -> bool:
        reason = self.refusal()
        if reason:
            _warn(f"the cache is not used: {reason}")
        return not reason


@functools.cache
def _warn(text: str) -> None:
    """Log `text` the first time that this process has reason to."""
    _log.warning(text)


def _not_ours(status: os.stat_result) -> str:
    """Return why a file or folder is not of this user alone; "" where it is, or where the system has no such notion."""
    if not hasattr(os, "geteuid"):
        return ""
    if status.st_uid != os.geteuid():
        return f"it belongs to the user {status.st_uid}"
    return "others may write to it" if status.st_mode & _OTHERS else ""
