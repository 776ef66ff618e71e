"""Notes of what a process is about to do that may end it: the next one that finds such a note does something else."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from fusion.cache.store import Store
from fusion.system.file_locks import HAS_LOCKS, try_lock

_BEGUN = b"1"


@contextmanager
def attempt(store: Store, name: str) -> Iterator[bool]:
    """Yield whether no process has ended in a block of this name, an entry of `store`, since one came out of it; an
    interrupt, as of one that hangs, counts as an end. Where the system has no locks, or refuses, True."""
    handle = store.open_to_write(name) if HAS_LOCKS else None
    if handle is None:
        yield True
        return
    try:
        if not try_lock(handle):  # another process is in such a block
            yield True
            return
        ended = os.read(handle, len(_BEGUN)) == _BEGUN
        if not ended:
            os.write(handle, _BEGUN)
        try:
            yield not ended
        except Exception:
            _forget(store, name, handle)
            raise
        _forget(store, name, handle)
    finally:
        os.close(handle)


def _forget(store: Store, name: str, handle: int) -> None:
    with suppress(OSError):
        os.ftruncate(handle, 0)  # for whoever has opened it meanwhile
        os.unlink(store.place.folder / name)
