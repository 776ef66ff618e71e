"""Tries a library in another process before this one asks it for anything: one that crashes, or does not come back,
ends nothing here.

Once for each version of a library: what it takes of a graph is asked there, and a part of that exported and opened.
"""

from __future__ import annotations

import json
import math
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import tvm
from tvm import relax

from backends.backend import GraphLibrary, RegionLibrary, VersionedLibrary
from backends.registry import host_library
from fusion.errors import ExecutionError
from fusion.forks import Lock
from fusion.passes.lift_weights import lift_weights
from fusion.passes.regions.offer import LibraryOffer
from fusion.passes.regions.read import RegionGraph, read_regions
from fusion.stages import stage
from fusion.tensors import byte_view
from tuning.answering import answer_questions, begin_answering
from tuning.decide import Decision
from tuning.measuring_session import MeasuringSession
from tuning.messages import MeasuredNetwork, Trial

_MOST_BYTES = 4096
"""Of a constant that the other process gets as it is: sizes and axes, which may decide what a library takes."""
_ENDED = "it crashed or hung while it was tried in another process"
_COMMAND = "from fusion.passes.regions.trial import main; main()"

_failures: dict[tuple[str, str], str] = {}
"""How each library that was tried has ended the other process, by name and version; "" where it has not."""
_lock = Lock()


@dataclass(frozen=True)
class LibraryTrial:
    """What the other process is asked.

    Attributes:
        library: Its name.
        graph: Path of a module with the graph that it is asked about.
        inputs: How many parameters of `main` are none of its large constants.
        threads: To open a part for.
        seconds: For measurements, of which there are none.
    """

    library: str
    graph: str
    inputs: int
    threads: int
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


def try_offer(found: RegionGraph, name: str, library: RegionLibrary, threads: int) -> LibraryOffer:
    """Return what the library of a name may be asked to take of a graph, and to open for so many threads, which
    `try_libraries` has tried.

    Raises:
        ExecutionError: It crashed or hung there. Whatever else fails there will here, too.
    """
    try_libraries(found, {name: library}, threads)
    failure = _failures[name, library.version]
    if failure:
        raise ExecutionError(failure)
    return LibraryOffer(found, library)


def try_libraries(found: RegionGraph, libraries: Mapping[str, RegionLibrary], threads: int) -> None:
    """Ask those of some libraries, by name, that this process has not tried yet in another one what they take of a
    graph, and have each open a part for so many threads."""
    with _lock:
        left = [key for name, library in libraries.items() if (key := (name, library.version)) not in _failures]
        if left:
            _failures.update(_tried(found.mod, left, threads))


@stage("try libraries")
def _tried(mod: tvm.IRModule, libraries: Sequence[tuple[str, str]], threads: int) -> dict[tuple[str, str], str]:
    """Return how each library, by name and version, ended the process that tried it; "" where it has not."""
    found = {}
    with TemporaryDirectory(prefix="fusion-trial-") as temporary:
        folder = Path(temporary)
        graph, inputs = folder / "graph.json", len(mod["main"].params)
        graph.write_text(tvm.ir.save_json(_without_large_constants(mod)))
        with MeasuringSession(folder, _COMMAND) as session:
            for key in libraries:
                results = session.run(LibraryTrial(key[0], str(graph), inputs, threads))
                found[key] = f"{_ENDED}: {results.failure}" if results.ended else ""
    return found


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


def main() -> None:
    """Try libraries until there are no more lines."""
    begin_answering()
    answer_questions(_answer)


def _answer(path: Path, _: Collection[Trial]) -> MeasuredNetwork:
    """Ask a library as the process that asks will; return what that took."""
    trial, started = LibraryTrial(**json.loads(path.read_text())), time.perf_counter()
    mod = _with_zeros(tvm.ir.load_json(Path(trial.graph).read_text()), trial.inputs)
    library = host_library(trial.library)
    assert isinstance(library, (GraphLibrary, VersionedLibrary))
    offer = LibraryOffer(read_regions(mod), library)
    taken = offer.taken
    parts = taken.parts or [frozenset({operator}) for operator in sorted(taken.operators)]
    if parts:
        library.open(library.export(offer.function(parts[0]).function), trial.threads)
    took = time.perf_counter() - started
    return MeasuredNetwork((Decision(0, took, took, math.inf, 1),), took, took)


def _with_zeros(mod: tvm.IRModule, inputs: int) -> tvm.IRModule:
    """Return `mod` with zeros in the place of the parameters of `main` after its inputs; those of one type share
    them."""
    zeros: dict[str, tvm.runtime.Tensor] = {}
    values = {}
    for param in mod["main"].params[inputs:]:
        shape, dtype = [int(extent) for extent in param.ty.shape.values], str(param.ty.dtype)
        kind = f"{dtype}{shape}"
        if kind not in zeros:
            zeros[kind] = tvm.runtime.empty(shape, dtype)
            byte_view(zeros[kind])[:] = 0
        values[param] = zeros[kind]
    return relax.transform.BindParams("main", values)(mod)


if __name__ == "__main__":
    main()
