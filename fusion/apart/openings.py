"""Opens what a library exported in another process first."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from backends.registry import host_library
from backends.subgraphs import subgraph_key
from fusion.apart import broken
from fusion.apart.process import asking_apart
from fusion.apart.questions import LibraryQuestion
from fusion.errors import ExecutionError
from fusion.system.forks import Lock

_opened: dict[str, str] = {}
"""Why what was opened there cannot be, by its key; "" where it can."""
_lock = Lock()


@dataclass(frozen=True)
class Opening(LibraryQuestion):
    """What a library exported, which is opened and not run.

    Attributes:
        exported: Path of that.
        threads: To open it for.
    """

    answered_by: ClassVar[str] = "fusion.apart.openings"
    imports_compiler: ClassVar[bool] = False
    asked_for: ClassVar[str] = "to open a part of a model"
    exported: str
    threads: int


def answer(library: str, exported: str, threads: int) -> None:
    """Open a part in the process that tries libraries."""
    host_library(library).open(Path(exported).read_bytes(), threads)


def open_apart(name: str, data: bytes, threads: int) -> None:
    """Have another process open what the library of a name exported as `data`, where none has.

    Raises:
        ExecutionError: It cannot be opened. Where that ended the process, or did not come back, the library opens
            nothing any more.
        NotTriedError: There is no such process, or it lacked memory, or room on a disk: it is tried again when asked
            again.
    """
    with _lock:
        broken.raise_if_broken(name)
        key = subgraph_key(name, data, threads)
        if key not in _opened:
            _opened[key] = _open(name, data, threads)
        if _opened[key]:
            raise ExecutionError(_opened[key])


def _open(name: str, data: bytes, threads: int) -> str:
    """Return why it cannot be opened; "" where it can."""
    with asking_apart() as other:
        path = other.folder / "exported"
        path.write_bytes(data)
        results = other.ask(Opening(name, str(path), threads))
    if results.ended:
        why = f"it crashed or hung while it opened a part of a model in another process: {results.failure}"
        broken.failures[name] = why
        return why
    return f"it opens no such part: {results.failure}" if results.failure else ""
