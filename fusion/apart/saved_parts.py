"""Opens the parts of a saved module in another process first, once on a machine."""

from __future__ import annotations

import hashlib
import json

from backends.registry import library, others
from backends.subgraphs import library_of
from fusion.apart import broken
from fusion.apart.openings import open_apart
from fusion.apart.process import NotTriedError
from fusion.cache import Store, find_place
from fusion.cache.texts import find_text, keep_text
from fusion.errors import ExecutionError, NotInstalledError, OptionError
from fusion.system.cpus import cpu_model


def open_saved_apart(key: str, data: bytes, threads: int) -> None:
    """Have another process open the part of a saved module that compiled code calls by `key`, where none has on this
    machine by the same version of its library, as far as the cache knows.

    Only what crashes or hangs there is an error: whatever else fails will where it is opened next, and say more; and
    where no other process can be started, nothing is known.

    Raises:
        ExecutionError: It crashed or hung.
    """
    name, store = library_of(key), _store()
    note = _note(name, key)
    if store is not None and note and find_text(store, note) is not None:
        return
    try:
        open_apart(name, data, threads)
    except NotTriedError:
        return
    except ExecutionError as error:
        if not broken.failures.get(name):
            return
        raise ExecutionError(
            f"the backend {name!r} cannot open its part of the model",
            why=error.what,
            hint="install the version that the module was made with, or compile the model again without that backend; "
            "verify=False opens it in this process at once",
        ) from error
    if store is not None and note:
        keep_text(store, note, name)


def _store() -> Store | None:
    try:
        place = find_place()
    except OptionError:  # of whoever compiles
        return None
    return Store(place) if place else None


def _note(name: str, key: str) -> str:
    """Return the name under which the cache knows that a part was opened; "" where nobody knows the version of who
    did."""
    if name in others():
        return ""
    try:
        version = getattr(library(name), "version", "")
    except NotInstalledError:
        return ""
    return f"{hashlib.sha256(json.dumps([key, version, cpu_model()]).encode()).hexdigest()}.opened"
