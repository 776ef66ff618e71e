"""Temporary files: linkers, the system's loader and other processes want paths."""

from __future__ import annotations

import errno
import math
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from fusion.errors import SavedFileError
from fusion.system.abandoned_folders import PREFIX, held, remove_abandoned

try:
    import resource
except ImportError:  # not on Windows
    resource = None  # type: ignore[assignment]


@contextmanager
def temporary_folder(room: int = 0) -> Iterator[Path]:
    """Make a folder that is gone at the end; `room` is how many bytes must be free in it, and a file may have.

    Raises:
        SavedFileError: There is none with that much room, or the system refuses what is done with the files in it.
    """
    with telling_of_files():
        remove_abandoned(Path(tempfile.gettempdir()))
        with ExitStack() as stack, tempfile.TemporaryDirectory(prefix=PREFIX) as folder:
            stack.enter_context(held(Path(folder)))  # until it is removed
            if shutil.disk_usage(folder).free < room:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), folder)
            if _largest_file() < room:
                raise OSError(errno.EFBIG, f"files may have {_largest_file():,} bytes here (RLIMIT_FSIZE)", folder)
            yield Path(folder)


def _largest_file() -> float:
    """Return how many bytes this process may write to a file."""
    if resource is None:
        return math.inf
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)[0]
    return math.inf if limit == resource.RLIM_INFINITY else limit


@contextmanager
def telling_of_files() -> Iterator[None]:
    """Let what the system refuses in the block be an error about temporary files.

    Raises:
        SavedFileError: It refuses something.
    """
    try:
        yield
    except OSError as error:
        raise SavedFileError(
            "cannot write temporary files",
            why=str(error),
            hint="set TMPDIR to a folder that can be written and has room",
        ) from error
