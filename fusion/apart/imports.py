"""Imports what another package registers in another process first."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

from backends.registry import library as registered
from backends.registry import others
from fusion.apart.process import NotTriedError, asking_apart
from fusion.apart.questions import LibraryQuestion
from fusion.errors import NotInstalledError
from fusion.system.forks import Lock

_broken: dict[str, str] = {}
"""How the import of what entry points name has ended the other process, by that; "" where it has not."""
_lock = Lock()


@dataclass(frozen=True)
class Import(LibraryQuestion):
    """An import of a backend."""

    answered_by: ClassVar[str] = "fusion.apart.imports"
    imports_compiler: ClassVar[bool] = True
    asked_for: ClassVar[str] = "to be imported"
    silence_s: ClassVar[float] = 10.0


def answer(library: str) -> None:
    """Import a backend in the process that tries libraries; what that raises, it will where it is asked from, too."""
    with suppress(Exception):
        registered(library)


def import_apart(name: str) -> None:
    """Have another process import what a package registers by a name, where none has. fusion's own backends import
    nothing of others.

    Raises:
        NotInstalledError: It crashed or hung there, or there is no such process, which is tried again when asked again.
    """
    entry = others().get(name)
    if entry is None:
        return
    hint = f"update the package that registers {entry.value!r}, or remove it"
    try:
        with _lock:
            if entry.value not in _broken:
                _broken[entry.value] = _import(name)
            why = _broken[entry.value]
    except NotTriedError as error:
        why, hint = error.what, "leave it out, or see why this machine starts no other process"
    if why:
        raise NotInstalledError(f"the backend {name!r} cannot be imported", why=why, hint=hint)


def _import(name: str) -> str:
    """Return how the import has ended the other process; "" where it has not."""
    with asking_apart() as other:
        results = other.ask(Import(name))
    return f"it crashed or hung while another process imported it: {results.failure}" if results.ended else ""
