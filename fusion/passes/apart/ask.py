"""The side that asks: which libraries are tried, and what is remembered of each.

Each is tried once in a process: what it takes of a graph is asked, and a part of that exported and opened. What it is
then given of any graph is opened apart, too, before it is here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import cached_property
from pathlib import Path

import tvm
from tvm import relax

from backends.backend import GraphLibrary, Library
from backends.subgraphs import subgraph_key
from fusion.errors import ExecutionError
from fusion.forks import Lock
from fusion.passes.apart.questions import LibraryTrial, Opening
from fusion.passes.lift_weights import lift_weights
from fusion.stages import stage
from fusion.temporary_folder import temporary_folder
from fusion.tensors import byte_view
from tuning.measuring_session import MeasuringSession, Results

_MOST_BYTES = 4096
"""Of a constant that the other process gets as it is: sizes and axes, which may decide what a library takes."""
_PATIENCE_S = 300.0
"""Without an answer: a library that compiles a whole model on a busy machine takes minutes, and one that is taken to
hang is asked for nothing more."""
_ENDED = "it crashed or hung while it was tried in another process"
_COMMAND = """\
from fusion.runtime import import_compiler
import_compiler()  # without PyTorch, which `import tvm` would bring along
from fusion.passes.apart.answer import main
main()
"""


class _OtherProcess:
    """Where libraries are asked, which starts when something is."""

    def __init__(self) -> None:
        self._kept = ExitStack()

    @cached_property
    def folder(self) -> Path:
        """For files."""
        return Path(self._kept.enter_context(temporary_folder()))

    @cached_property
    def session(self) -> MeasuringSession:
        """Who talks with it."""
        return self._kept.enter_context(MeasuringSession(self.folder, _COMMAND, patience=_PATIENCE_S))

    def ask(self, question: LibraryTrial | Opening) -> Results:
        """Return what came of a question; a process that ends before it has begun with it is followed by another.

        Raises:
            ExecutionError: That ends, too, or lacks memory or room on a disk, which says nothing of the library.
        """
        results = self.session.run(question)
        if results.ended and not results.begun:
            results = self.session.run(question)
        if results.lost or (results.ended and not results.begun):
            raise ExecutionError(f"it could not be tried in another process: {results.lost or results.failure}")
        return results

    def end(self) -> None:
        """End it, and remove the files."""
        self._kept.close()


_failures: dict[tuple[str, str], str] = {}
"""How each library that was tried has ended the other process, by name and version; "" where it has not."""
_opened: dict[tuple[str, str], str] = {}
"""Why what was opened there cannot be, by its key and the version of the library; "" where it can."""
_lock = Lock()


class _Held(threading.local):
    """The process of a thread's block: it ends with the thread that started it, and is not for others therefore."""

    other: _OtherProcess | None = None


_held = _Held()


@contextmanager
def asking_apart() -> Iterator[_OtherProcess]:
    """Keep one process for all that this thread asks libraries in the block; it starts with the first question."""
    if _held.other is not None:
        yield _held.other
        return
    other = _OtherProcess()
    try:
        _held.other = other
        yield other
    finally:
        _held.other = None
        other.end()


def try_library(mod: tvm.IRModule, name: str, library: Library | GraphLibrary, threads: int) -> None:
    """Have another process ask the library of a name what it takes of `main`, and open a part of that for so many
    threads, where none has.

    Raises:
        ExecutionError: It crashed or hung there, or could not be tried. Whatever else fails there will here, too.
    """
    with _lock:
        key = name, _version(library)
        if key not in _failures:
            _failures[key] = _try(mod, name, threads)
        _raise_if_broken(name, library)


def try_libraries(mod: tvm.IRModule, libraries: Mapping[str, Library | GraphLibrary], threads: int) -> None:
    """As `try_library`, of several: which of them crash or hang is noted for whoever asks next."""
    for name, library in libraries.items():
        with suppress(ExecutionError):
            try_library(mod, name, library, threads)


@stage("try libraries")
def _try(mod: tvm.IRModule, name: str, threads: int) -> str:
    """Return how the library of a name ended the process that tried it; "" where it has not."""
    with asking_apart() as other:
        graph, inputs = other.folder / "graph.json", len(mod["main"].params)
        graph.write_text(tvm.ir.save_json(_without_large_constants(mod)))
        results = other.ask(LibraryTrial(name, str(graph), inputs, threads))
    return f"{_ENDED}: {results.failure}" if results.ended else ""


def _without_large_constants(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with its large constants as parameters after the inputs of `main`."""
    without, weights = lift_weights(mod)
    params = without["main"].params[-len(weights) :] if weights else []
    small = {  # by variable: an input may have the name of a weight
        param: weight
        for param, weight in zip(params, weights, strict=True)
        if byte_view(weight).nbytes <= _MOST_BYTES
    }
    return relax.transform.BindParams("main", small)(without)


def open_apart(name: str, library: Library | GraphLibrary, data: bytes, threads: int) -> None:
    """Have another process open what the library of a name exported as `data`, where none has.

    Raises:
        ExecutionError: It cannot be opened. Where that ended the process, or did not come back, the library opens
            nothing any more; where it lacked memory, or room on a disk, it is tried again when asked again.
    """
    with _lock:
        _raise_if_broken(name, library)
        key = (subgraph_key(name, data, threads), _version(library))
        if key not in _opened:
            _opened[key] = _open(name, library, data, threads)
        if _opened[key]:
            raise ExecutionError(_opened[key])


def _open(name: str, library: Library | GraphLibrary, data: bytes, threads: int) -> str:
    """Return why it cannot be opened; "" where it can."""
    with asking_apart() as other:
        path = other.folder / "exported"
        path.write_bytes(data)
        results = other.ask(Opening(name, str(path), threads))
    if results.ended:
        why = f"it crashed or hung while it opened a part of a model in another process: {results.failure}"
        _failures[name, _version(library)] = why
        return why
    return f"it opens no such part: {results.failure}" if results.failure else ""


def _raise_if_broken(name: str, library: Library | GraphLibrary) -> None:
    failure = _failures.get((name, _version(library)), "")
    if failure:
        raise ExecutionError(failure)


def _version(library: Library | GraphLibrary) -> str:
    """Return the version; "" of one that tells none, of which there is one in a process."""
    return str(getattr(library, "version", ""))
