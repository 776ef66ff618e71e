"""A trial of a library, in the process that tries libraries: it is asked as the process that compiles will."""

from __future__ import annotations

from pathlib import Path

import tvm
from tvm import relax

from backends.backend import GraphLibrary, Library, VersionedLibrary
from backends.registry import host_library
from fusion.passes.regions.offer import LibraryOffer
from fusion.passes.regions.read import read_regions
from fusion.passes.take_subgraphs import find_matches
from fusion.tensors import byte_view


def answer(library: str, graph: str, inputs: int, threads: int) -> None:
    """Have the library of a name export a part of a graph, and open it: the fields are those of a `LibraryTrial`."""
    asked = host_library(library)
    data = _export_part(asked, _with_zeros(tvm.ir.load_json(Path(graph).read_text()), inputs))
    if data is not None:
        asked.open(data, threads)


def _export_part(library: Library | GraphLibrary, mod: tvm.IRModule) -> bytes | None:
    """Return what the library exports of one operator that it takes, or of one match; None where it takes nothing."""
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
