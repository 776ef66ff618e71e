"""Has another process ask a library first: what it takes of a graph, and to export and open a part of that.

Each library is tried once in a process. What it is then given of any graph is opened apart, too, before it is here.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import ClassVar

import tvm
from tvm import relax

from fusion.apart import asking_apart, broken
from fusion.apart.questions import LibraryQuestion
from fusion.errors import ExecutionError
from fusion.passes.lift_weights import lift_weights
from fusion.stages import stage
from fusion.system.forks import Lock
from fusion.tensors import byte_view

_MOST_BYTES = 4096
"""Of a constant that the other process gets as it is: sizes and axes, which may decide what a library takes."""
_ENDED = "it crashed or hung while it was tried in another process"
_lock = Lock()


@dataclass(frozen=True)
class LibraryTrial(LibraryQuestion):
    """What a library takes of a graph, of which a part is exported and opened.

    Attributes:
        graph: Path of a module with the graph.
        inputs: How many parameters of `main` are none of its large constants.
        threads: To open a part for.
    """

    answered_by: ClassVar[str] = "fusion.passes.answer_trial"
    imports_compiler: ClassVar[bool] = True
    asked_for: ClassVar[str] = "what it takes of a model"
    graph: str
    inputs: int
    threads: int


def try_library(mod: tvm.IRModule, name: str, threads: int) -> None:
    """Have another process ask the library of a name what it takes of `main`, and open a part of that for so many
    threads, where none has.

    Raises:
        ExecutionError: It crashed or hung there, or could not be tried. Whatever else fails there will here, too.
    """
    with _lock:
        if name not in broken.failures:
            # What opens a part meanwhile, in another thread, may have noted a failure: that stands.
            broken.failures.setdefault(name, _try(mod, name, threads))
        broken.raise_if_broken(name)


def try_libraries(mod: tvm.IRModule, names: Iterable[str], threads: int) -> None:
    """As `try_library`, of several: which of them crash or hang is noted for whoever asks next."""
    for name in names:
        with suppress(ExecutionError):
            try_library(mod, name, threads)


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
