"""Locks on files: the system gives one up when nobody has the file open any more, however that came about; a number of
a process would tell nothing in another container."""

from __future__ import annotations

try:
    import fcntl
except ImportError:  # not on Windows
    fcntl = None  # type: ignore[assignment]

HAS_LOCKS = fcntl is not None


def try_lock(handle: int) -> bool:
    """Lock an open file; return False where another has it, or where there are no locks."""
    if fcntl is None:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def wait_for_lock(handle: int) -> None:
    """Lock an open file once no other has it; on a system without locks, go on.

    Raises:
        OSError: The file system has none.
    """
    if fcntl is not None:
        fcntl.flock(handle, fcntl.LOCK_EX)
