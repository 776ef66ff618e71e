"""Opens the files that users and models name: regular ones only, as reading of others may never end."""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import Any

from fusion.errors import OptionError
from fusion.system.memory import usable_memory

_KINDS = (
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)


def as_path(value: Any) -> Path:
    """Return `value` as a path.

    Raises:
        OptionError: It is of a type that names no file.
    """
    try:
        return Path(value)
    except TypeError:
        raise OptionError(
            f"a file is named by a path, not by a value of type {type(value).__name__}",
            hint="give a str or a pathlib.Path",
        ) from None


def check_file(path: str | Path) -> int:
    """Return the size in bytes of the regular file at `path`, without opening it.

    Raises:
        OSError: There is none; `strerror` says what there is instead, or why it cannot be told.
    """
    try:
        return _size(os.stat(path), path)
    except ValueError as error:  # a NUL, or half of a surrogate pair
        raise OSError(errno.EINVAL, f"that is no path: {error}", ascii(str(path))) from error


def open_file(path: str | Path) -> BufferedReader:
    """Return the regular file at `path`, opened for reading.

    Raises:
        OSError: As `check_file`; or it cannot be read.
    """
    check_file(path)
    # Should the file have become a pipe meanwhile, this does not wait for a writer.
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0))
    try:
        _size(os.fstat(handle), path)
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def read_file(path: str | Path, most: int | None = None) -> bytes:
    """Return the bytes of the regular file at `path`, the first `most` of them.

    No more are read than the system says that there are: those that it makes while they are read, in /proc, say 0, and
    some of them have no end.

    Raises:
        OSError: As `open_file`; or the file is larger than the memory this process may use.
    """
    with open_file(path) as file:
        size = os.fstat(file.fileno()).st_size
        wanted = size if most is None else min(size, most)
        if wanted > usable_memory():
            raise OSError(errno.EFBIG, f"it has {size:,} bytes, more than the memory of this process", str(path))
        return file.read(wanted) or b""


def _size(status: os.stat_result, path: str | Path) -> int:
    if stat.S_ISREG(status.st_mode):
        return status.st_size
    if stat.S_ISDIR(status.st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    kind = next((text for test, text in _KINDS if test(status.st_mode)), "it is no regular file")
    raise OSError(errno.EINVAL, kind, str(path))
