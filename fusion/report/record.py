"""Makes the `ModelGraph` of a model while it is compiled: which operator went into which call, what was not fused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import tvm

from backends.tensorir.lower_anchors import LoweredAnchors
from fusion.facts import Facts, PassResult
from fusion.frontends.imported import ImportedModel
from fusion.frontends.origins import all_origins
from fusion.model_graph import FOLDED, INFERRED, MAPPED, GraphCall, KeptEdge, ModelGraph, SourceOperator
from fusion.passes.concats import Placement
from fusion.passes.layout import StoredIn
from fusion.passes.regions import PlacedRegion, PlacedRegions
from fusion.passes.take_subgraphs import Taken
from fusion.report.read_graph import MAIN, CallReader, Named, OperatorReader, branch_names
from fusion.rewrites import Log
from partition.formed import Grouping

_AUTOMATIC = re.compile(r"lv\d*")
"""Names that TVM gives; a pass may give one to another value than it had before."""
_PRODUCTS = ("matmul", "nn.conv1d", "nn.conv2d", "nn.conv3d")
_NUMBERED = re.compile(r"(?<=[a-z])\d+(?=_|$)")
"""Numbers behind the names of operators in that of a kernel."""


@dataclass(frozen=True)
class Trace:
    """Where the passes over one graph put its values.

    Attributes:
        groups: The kernels as they are in the end.
        stored: Variables that hold each one of the imported graph after storage orders were assigned.
        joined: Variables of the calls that write each concatenation without a kernel of its own.
        regions: What libraries run of the graph, in the order they run.
    """

    groups: Grouping
    stored: Mapping[str, tuple[str, ...]]
    joined: Mapping[str, tuple[str, ...]]
    regions: tuple[PlacedRegion, ...]

    @classmethod
    def of(cls, facts: Facts) -> Trace:
        """Return what the passes told of that."""
        placement = facts.get(Placement)
        groups = placement.update(facts.get(Grouping))
        return cls(groups, facts.get(StoredIn).variables, placement.writers, facts.get(PlacedRegions).regions)

    def variables(self, imported: set[str]) -> dict[str, tuple[str, ...]]:
        """Return the variables of the calls that each variable of the graph became a part of.

        Args:
            imported: Names of the variables before any pass.
        """
        into = self.members()
        return {
            name: tuple(call for held in self.stored[name] for call in into.get(held, ()))
            for name in self._kept_names(self.stored, imported)
        }

    def in_regions(self, imported: set[str], places: Mapping[str, Sequence[int]]) -> dict[str, tuple[int, ...]]:
        """Return the positions of the calls of regions, by the names of the operators in them.

        That needs no name of a result after it: a region with several is a call of a tuple, and passes rename what they
        take from that.

        Args:
            imported: Names of the variables before any pass.
            places: Positions of the graph's calls by what they are of, in order: a region's key.
        """
        count = Counter(region.key for region in self.regions)
        left = {key: iter(places.get(key, ())) for key in count if len(places.get(key, ())) == count[key]}
        called = [(region, next(left[region.key])) for region in self.regions if region.key in left]
        kept = set(self._kept_names([name for region in self.regions for name in region.names], imported))
        return {name: (place,) for region, place in called for name in region.names if name in kept}

    def _kept_names(self, names: Iterable[str], imported: set[str]) -> list[str]:
        """Return those of `names` that are what they were before any pass, where `imported` were the names.

        Passes keep names, but where they bind a value of their own, what TVM names after it gets another number.
        """
        now = (*self.stored, *(name for region in self.regions for name in region.names))
        renumbered = any(_AUTOMATIC.fullmatch(name) and name not in imported for name in now)
        return [name for name in names if not (renumbered and _AUTOMATIC.fullmatch(name))]

    def members(self) -> dict[str, tuple[str, ...]]:
        """Return the variables of the calls that each member of a group is part of, several where each writes a part of
        it; names that come twice are left out."""
        count = Counter(name for formed in self.groups.formed for name in formed.members)
        return {
            name: self.joined.get(formed.variable, (formed.variable,))
            for formed in self.groups.formed for name in formed.members if count[name] == 1
        }  # fmt: skip


def notes_of(facts: Facts, mod: tvm.IRModule) -> list[str]:
    """Return what the passes over the imported graph `mod` did and declined to do, one sentence each, which say of
    which operators of the model they are where those are known."""
    origins, stored = all_origins(mod), facts.get(StoredIn)
    held = dict(origins)  # what is the result keeps its variable
    for name, variables in stored.variables.items():
        held.update((each, origins[name]) for each in variables if name in origins)
    own = *facts.get(Log).notes(origins), *facts.get(PlacedRegions).notes, *facts.get(Taken).notes
    return [*own, *stored.declines.notes(origins), *facts.get(LoweredAnchors).declines.notes(held)]


def record_graph(
    imported: ImportedModel,
    graphs: Mapping[str, PassResult[Facts]],
    compiled: tvm.IRModule,
    loops: Mapping[str, tuple[str, ...]],
) -> ModelGraph:
    """Return the graph before and after.

    Args:
        imported: The model before any pass.
        graphs: Its graph, named `MAIN`, and its branches, as calls of kernels that are not joined yet, and what the
            passes over each told.
        compiled: All of them joined, weights as parameters after the inputs.
        loops: Lines for each kernel.
    """
    assert imported.mod is not None
    before = OperatorReader(imported).run()
    traces = {name: Trace.of(graph.fact) for name, graph in graphs.items()}
    branches = branch_names({name: graph.mod for name, graph in graphs.items()})
    after = CallReader(branches).run(compiled["main"], len(imported.mod["main"].params))
    followed = {
        graph: _followed(trace, graph, {name for of, name in before.keys if of == graph}, after)
        for graph, trace in traces.items()
    }
    placed = {
        graph: trace.in_regions({name for of, name in before.keys if of == graph}, after.places_in(graph))
        for graph, trace in traces.items()
    }
    into = _calls_of(before, after, {graph: {**followed[graph], **placed[graph]} for graph in traces})
    into |= _kernels_of_model(imported, before, after.calls, into)
    into |= _kernels_of_products(before.operators, after.calls, into)
    calls = _with_savings(after.calls, after.named, traces)
    kept = tuple(edge for graph, trace in traces.items() for edge in _kept(graph, trace, after.named, calls))
    own = {name for of, name in before.keys if of == MAIN}
    rewritten = {name: calls for name, calls in followed[MAIN].items() if name not in own}
    return ModelGraph(tuple(_map(before.operators, into)), tuple(calls), kept, dict(loops), rewritten)


def _followed(trace: Trace, graph: str, imported: set[str], after: CallReader) -> dict[str, tuple[int, ...]]:
    """Return the calls of each value of a `graph` that was followed through the passes, by its name; `imported` are the
    names before any."""
    found = {
        name: dict.fromkeys(call for variable in held for call in after.named.get((graph, variable), ()))
        for name, held in trace.variables(imported).items()
    }
    return {name: tuple(calls) for name, calls in found.items() if calls}


def _calls_of(
    before: OperatorReader, after: CallReader, followed: Mapping[str, Mapping[str, tuple[int, ...]]]
) -> dict[int, tuple[int, ...]]:
    """Return the calls of each operator whose result was `followed` through the passes."""
    found: dict[int, tuple[int, ...]] = {}
    for position, (graph, name) in enumerate(before.keys):
        calls = followed[graph].get(name, ())
        if before.operators[position].op == "input":
            calls = after.named.get((graph, name), ())
        if calls:
            found[position] = tuple(dict.fromkeys(calls))
    for graph, results in before.outputs.items():
        # What a graph returns gets the name of its result.
        for made, returned in zip(results, after.outputs.get(graph, ()), strict=False):
            for position in made:
                found.setdefault(position, returned)
    return found


def _kernels_of_model(
    imported: ImportedModel, before: OperatorReader, calls: Sequence[GraphCall], into: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the calls of kernels that the model came with, as recurrent layers, and that are in none of the calls of
    `into` by a name of theirs: passes rename their results, which are tuples, and leave them alone otherwise."""
    modules = [mod for mod in (imported.mod, *imported.branches.values()) if mod is not None]
    names = {symbol.name_hint for mod in modules for symbol in mod.get_global_vars()} - {MAIN}
    found: dict[int, tuple[int, ...]] = {}
    for name in names:
        operators = [place for place, each in enumerate(before.operators) if each.op == name and place not in into]
        places = [place for place, call in enumerate(calls) if call.kind == "kernel" and call.op == name]
        if len(operators) == len(places):
            found |= {operator: (place,) for operator, place in zip(operators, places, strict=True)}
    return found


def _kernels_of_products(
    operators: Sequence[SourceOperator], calls: Sequence[GraphCall], into: Mapping[int, tuple[int, ...]]
) -> dict[int, tuple[int, ...]]:
    """Return the calls of products whose results no name was left of, as those of a convolution of bytes are with what
    follows: kernels that are named for such a product and that no operator has, where there are as many of both.

    They are paired in order: passes rewrite `main` binding by binding, products of bytes stay where they were, and what
    follows them in their kernel is elementwise. Of 49 graphs of three such convolutions of different widths, drawn with
    what stands before and behind each in any order, on three libraries, none was paired wrongly.
    """
    owned = {call for places in into.values() for call in places}
    found: dict[int, tuple[int, ...]] = {}
    for product in _PRODUCTS:
        lost = [place for place, each in enumerate(operators) if each.op == product and place not in into]
        name = product.rpartition(".")[2]
        free = [
            place for place, call in enumerate(calls)
            if call.kind == "kernel" and place not in owned and name in _NUMBERED.sub("", call.op).split("_")
        ]  # fmt: skip
        if len(lost) == len(free):
            found |= {operator: (place,) for operator, place in zip(lost, free, strict=True)}
    return found


def _map(operators: list[SourceOperator], into: Mapping[int, tuple[int, ...]]) -> list[SourceOperator]:
    """Return the operators with their calls, those of rewritten ones inferred from their neighbours."""
    mapped = [
        replace(operator, calls=into[position], how=MAPPED) if into.get(position) else operator
        for position, operator in enumerate(operators)
    ]
    _fold(mapped)
    consumers: list[list[int]] = [[] for _ in mapped]
    for position, operator in enumerate(mapped):
        for read in operator.reads:
            consumers[read.source].append(position)
    _infer(mapped, reversed(range(len(mapped))), lambda position: consumers[position])
    _infer(mapped, range(len(mapped)), lambda position: [read.source for read in mapped[position].reads])
    return mapped


def _fold(mapped: list[SourceOperator]) -> None:
    """Mark what depends on no input and is no part of a call."""
    fed: list[bool] = []
    for position, operator in enumerate(mapped):
        fed.append(operator.op == "input" or any(fed[read.source] for read in operator.reads))
        if not fed[position] and operator.how != MAPPED:
            mapped[position] = replace(operator, how=FOLDED)


def _infer(mapped: list[SourceOperator], order: Iterable[int], neighbours: Callable[[int], list[int]]) -> None:
    """Give operators without calls those of their neighbours; nothing is computed in an input."""
    for position in order:
        operator = mapped[position]
        if operator.how in (MAPPED, FOLDED) or operator.calls or operator.op == "input":
            continue
        around = (mapped[near] for near in neighbours(position))
        calls = dict.fromkeys(call for near in around if near.op != "input" for call in near.calls)
        if calls:
            mapped[position] = replace(operator, calls=tuple(calls), how=INFERRED)


def _with_savings(calls: list[GraphCall], named: Named, traces: Mapping[str, Trace]) -> list[GraphCall]:
    result = list(calls)
    for graph, trace in traces.items():
        for formed in trace.groups.formed:
            for call in named.get((graph, formed.variable), ()) if formed.saved else ():
                result[call] = replace(result[call], saved=formed.saved)
    return result


def _kept(graph: str, trace: Trace, named: Named, calls: list[GraphCall]) -> list[KeptEdge]:
    into, edges = trace.members(), []
    for kept in trace.groups.kept:
        source, target = (
            next(iter(call for variable in into.get(name, ()) for call in named.get((graph, variable), ())), -1)
            for name in (kept.source, kept.target)
        )
        reads = calls[target].reads if target >= 0 else ()
        if source == target >= 0:  # a reshape of what the call makes: it takes the same memory
            continue
        size = next((read.bytes for read in reads if read.source == source), 0)
        edges.append(
            KeptEdge(
                producer=kept.producer,
                consumer=kept.consumer,
                reason=kept.reason,
                source=source,
                target=target,
                bytes=size,
            )
        )
    return edges
