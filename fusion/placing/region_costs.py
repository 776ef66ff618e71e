"""What regions of a model take on libraries, measured in a process of its own, beside our kernels for the same."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import tvm
from tvm import relax

from fusion import pipeline
from fusion.context import Context
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.frontends.imported import ImportedModel
from fusion.module.specialization import Specialization
from fusion.options import FAST, GENERATOR
from fusion.passes.regions import LibraryOffer, RegionGraph, read_regions
from fusion.passes.regions.write import write_region
from fusion.placing.placement_bench import PlacementBench
from fusion.placing.records import REGIONS, placement_record, placement_task
from fusion.shapes import known_extents
from fusion.signature import TensorSpec
from placement.cover.places import GivenPlaces, Places, PlacesByOrder, alone_on_host
from placement.cover.problem import HOST
from placement.cover.regions import PlacedSubgraph, place_operators
from tuning.decide import CandidateTimes
from tuning.known import Knowledge
from tuning.record import Record
from tuning.task import TuningTask

MOST_STRUCTURES = 12
"""Regions of a model that are measured on a library, and ways to run parts of one that are measured besides; equal
ones count once."""
_REGION_SECONDS, _WHOLE_SECONDS = 1.0, 1.0

Make = Callable[[ImportedModel, Context], Specialization]
"""Compiles a model in one way."""


@dataclass
class MeasuredCosts:
    """The `PlacementCosts` of a model on this machine.

    Attributes:
        imported: The model.
        ctx: With libraries of regions; nothing more is measured behind its deadline.
        make: Compiles models.
        found: The graph that is covered.
        offers: What each library takes of it, by its position.
        knowledge: What was measured before, and where what is measured is kept.
        bench: Saves modules and compares them.
        all_cpu: The saved module of our kernels alone.
        asked: What is known of regions, by the keys of their tasks, as far as they are the first of their operators, or
            not.
        alone: Keys of questions about single kernels, which are answered before any region is asked for.
        broken: Which libraries are asked for nothing more, by their positions, and why.
        failed: Why the first part that each library failed at, or was wrong at, is not its, by their positions.
    """

    imported: ImportedModel
    ctx: Context
    make: Make
    found: RegionGraph
    offers: Mapping[int, LibraryOffer]
    knowledge: Knowledge
    bench: PlacementBench
    all_cpu: str
    asked: dict[bool, dict[str, Record]] = field(default_factory=lambda: {True: {}, False: {}}, init=False)
    alone: set[str] = field(default_factory=set, init=False)
    broken: dict[int, str] = field(default_factory=dict, init=False)
    failed: dict[int, str] = field(default_factory=dict, init=False)
    _wholes: dict[str, str] = field(default_factory=dict, init=False)
    _ours: dict[frozenset[int], str] = field(default_factory=dict, init=False)

    def region(
        self, backend: int, operators: frozenset[int], parts: tuple[frozenset[int], ...] | None, ours: float
    ) -> float:
        """See `PlacementCosts`."""
        name = [*self.ctx.graph_libraries][backend - 1]
        function = write_region(self.found, operators).function
        inside = None if parts is None else parts_within(parts, operators)
        task, whole = (region_task(function, name, self.ctx, self.knowledge, each) for each in (inside, None))
        is_first = whole.key not in self._wholes or self._wholes[whole.key] == task.key
        asked = self.asked[is_first]
        record = asked.get(task.key) or next(iter(self.knowledge.records([task])), None)
        count = sum(each.task.family == task.family for key, each in asked.items() if key not in self.alone)
        if record is None and backend not in self.broken and count < MOST_STRUCTURES and self.ctx.deadline.left > 0:
            record = placement_record(task, REGIONS, self._compare(operators, function, backend, inside), time.time())
            self.knowledge.keep([record, *self._told_besides(record, whole, backend, parts)])
        if record is None:
            return math.inf
        asked[task.key] = record
        self._wholes.setdefault(whole.key, task.key)
        return seconds_in_network(record, ours) if record.runs else math.inf

    def _told_besides(
        self, record: Record, whole: TuningTask, backend: int, parts: tuple[frozenset[int], ...] | None
    ) -> Iterator[Record]:
        """Yield what was measured around `parts` as what reports look for: what is known of one that is alone, and of
        the `whole` if nothing faster is."""
        if parts is None:
            return
        if len(parts) == 1:
            name = [*self.ctx.graph_libraries][backend - 1]
            function = self.offers[backend].function(parts[0]).function
            alone = region_task(function, name, self.ctx, self.knowledge, parts_within(parts, parts[0]))
            if alone.key != record.task.key:
                yield replace(record, task=alone)
        known = next(iter(self.knowledge.records([whole])), None)
        if record.runs and (known is None or record.ratio < known.ratio):
            yield replace(record, task=whole)

    def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
        """See `PlacementCosts`: relative to our kernels alone."""
        places = GivenPlaces(self.found.graph.names, tuple(groups))
        try:
            path = self._saved(self.imported, replace(self.ctx, places=places, effort=FAST))
        except FusionError:
            return math.inf
        took = self._times((self.all_cpu, path), _WHOLE_SECONDS)
        return math.inf if took is None else took.seconds / took.default_s

    def _compare(
        self,
        operators: frozenset[int],
        function: relax.Function,
        backend: int,
        parts: tuple[frozenset[int], ...] | None,
    ) -> CandidateTimes | None:
        """Return what a region takes on a library, or with `parts` of it there, and on our kernels; None where it
        fails, or stays with ours."""
        model = _model_of(function)
        try:
            there = PlacesByOrder((backend,)) if parts is None else self._places(model, backend, parts)
            if operators not in self._ours:
                self._ours[operators] = self._saved(model, replace(self.ctx, places=PlacesByOrder(), effort=FAST))
            path = self._saved(model, replace(self.ctx, places=there, effort=FAST), needs=True)
        except (Declined, FusionError):
            return None
        return self._times((self._ours[operators], path), _REGION_SECONDS, backend)

    def _places(self, model: ImportedModel, backend: int, parts: tuple[frozenset[int], ...]) -> Places:
        """Return the placement of a region, as a model, with parts of it on a library. Passes may add operators to the
        region, as that which makes a tuple of its results: those of the parts are found by their names.

        Raises:
            Declined: What they make of the region has other matches.
        """
        assert model.mod is not None
        names, found = read_regions(model.mod).graph.names, pipeline.regions_of(model.mod, self.ctx)
        graph, library = found.graph, [*self.ctx.graph_libraries.values()][backend - 1]
        places = {found.origins.get(name, name): place for place, name in enumerate(graph.names)}
        if not {names[each] for part in parts for each in part} <= places.keys():
            raise Declined("passes give the operators of a region other names")
        there = [frozenset(places[names[each]] for each in part) for part in parts]
        if not {*there} <= LibraryOffer(found, library).patterns.keys():
            raise Declined("what passes make of a region has other matches")
        groups = place_operators(graph, alone_on_host(graph), [True] * len(graph.operators), backend, there)
        return GivenPlaces(graph.names, tuple(groups))

    def _times(self, paths: tuple[str, ...], seconds: float, backend: int = HOST) -> CandidateTimes | None:
        """Return what the second of two modules takes, None where it fails; where it ends the process that measures, or
        does not come back, the `backend` of its region is asked for nothing more."""
        results = self.bench.compare(paths, seconds)
        for reason in results.reasons.values():
            self.broken[backend] = reason
        for reason in results.notes.values():
            self.failed.setdefault(backend, reason)
        return next((found for each in results.decisions for found in each.times if found.candidate == 1), None)

    def _saved(self, model: ImportedModel, ctx: Context, *, needs: bool = False) -> str:
        """Return the path of a saved module, which `needs` a library to run a part of it.

        Raises:
            Declined: None does.
        """
        form = self.make(model, ctx)
        if needs and not form.subgraphs:
            raise Declined("; ".join(form.notes))
        return self.bench.save(form, ctx)


def seconds_in_network(record: Record, ours: float) -> float:
    """Return what a library takes for a region in the network, where our kernels take `ours`, by what both took alone.

    In the network weights and inputs lie elsewhere than in a region that is repeated alone, which makes both slower.
    Our kernels may be faster there, as alone they read and write tensors in the order of their axes; a library is not.
    """
    return max(ours * record.ratio, record.seconds)


def region_task(
    function: relax.Function,
    name: str,
    ctx: Context,
    knowledge: Knowledge,
    parts: tuple[frozenset[int], ...] | None = None,
) -> TuningTask:
    """Return the question whether a region is faster on the library of this `name` than on our kernels; of a library
    that runs `parts` only, by their positions in it, whether it is with these there, and without any whether it is with
    those that are the fastest."""
    text = "" if parts is None else f"\n{[sorted(part) for part in parts]}"
    return _task(function, f"{name} {ctx.graph_libraries[name].version}", ctx, knowledge, text)


def parts_within(parts: Sequence[frozenset[int]], operators: frozenset[int]) -> tuple[frozenset[int], ...]:
    """Return parts of some operators by the positions in these."""
    places = {operator: place for place, operator in enumerate(sorted(operators))}
    return tuple(sorted((frozenset(places[each] for each in part) for part in parts), key=min))


def kernels_task(function: relax.Function, ctx: Context, knowledge: Knowledge) -> TuningTask:
    """Return the question what our kernel for a region takes in a network."""
    return _task(function, GENERATOR, ctx, knowledge)


def _task(
    function: relax.Function, family: str, ctx: Context, knowledge: Knowledge, parts: str = ""
) -> TuningTask:
    inputs = specs_of("p", [param.ty for param in function.params])
    return placement_task(family, f"{function.script(show_meta=False)}{parts}", inputs, ctx, knowledge)


def _model_of(function: relax.Function) -> ImportedModel:
    mod = tvm.IRModule({"main": function.with_attr("global_symbol", "main")})
    results = list(function.ret_ty.fields) if isinstance(function.ret_ty, relax.TupleType) else [function.ret_ty]
    return ImportedModel(mod, specs_of("p", [param.ty for param in function.params]), specs_of("y", results))


def specs_of(letter: str, kinds: Sequence[relax.Type]) -> tuple[TensorSpec, ...]:
    """Return tensors of some kinds, named by a letter and their positions."""
    return tuple(
        TensorSpec(f"{letter}{place}", known_extents(kind.shape), str(kind.dtype))
        for place, kind in enumerate(kinds)
    )
