"""The process that tries libraries: it asks and opens as the one that asks will."""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from pathlib import Path

import tvm
from tvm import relax

from backends.backend import GraphLibrary, Library, VersionedLibrary
from backends.registry import host_library
from fusion.passes.apart.questions import LibraryTrial, Opening, read_question
from fusion.passes.regions.offer import LibraryOffer
from fusion.passes.regions.read import read_regions
from fusion.passes.take_subgraphs import find_matches
from fusion.tensors import byte_view
from tuning.answering import answer_questions, begin_answering, say
from tuning.decide import Decision
from tuning.messages import MeasuredNetwork, ServerLostError, Trial, Trying


def main() -> None:
    """Try libraries until there are no more lines."""
    begin_answering()
    answer_questions(_answer)


def _answer(path: Path, _: Collection[Trial]) -> MeasuredNetwork:
    """Do what is asked; return what that took.

    Raises:
        ServerLostError: This process lacked memory, or room on a disk, which says nothing of the library.
    """
    question, started = read_question(path), time.perf_counter()
    say(Trying(Trial(0, 0)))  # from here on, an end is the library's fault
    try:
        _open(question)
    except (MemoryError, OSError) as error:
        raise ServerLostError(f"{type(error).__name__}: {error}") from error
    took = time.perf_counter() - started
    return MeasuredNetwork((Decision(0, took, took, math.inf, 1),), took, took)


def _open(question: LibraryTrial | Opening) -> None:
    """Have the library open what it exported, or exports of a part of the graph."""
    library = host_library(question.library)
    if isinstance(question, LibraryTrial):
        data = _export_part(question, library)
    else:
        data = Path(question.exported).read_bytes()
    if data is not None:
        library.open(data, question.threads)


def _export_part(trial: LibraryTrial, library: Library | GraphLibrary) -> bytes | None:
    """Return what the library exports of one operator that it takes, or of one match; None where it takes nothing."""
    mod = _with_zeros(tvm.ir.load_json(Path(trial.graph).read_text()), trial.inputs)
    if not isinstance(library, GraphLibrary | VersionedLibrary):
        _, matches = find_matches(mod, library)
        return next(map(library.export, matches.values()), None)
    offer = LibraryOffer(read_regions(mod), library)
    taken = offer.taken
    parts = taken.parts or [frozenset({operator}) for operator in sorted(taken.operators)]
    return library.export(offer.function(parts[0]).function) if parts else None


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
