"""Where a compiled model runs, and why there: `CompiledModule.placement`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from backends.kernel import KernelInfo
from backends.registry import libraries
from backends.subgraphs import library_of
from fusion.counted import counted
from fusion.model_graph import FOLDED, GraphCall, ModelGraph
from fusion.module.specialization import Specialization
from fusion.options import FALLBACK, GENERATOR
from fusion.placement_times import PartTimes, PlacementTimes

_MOST_KINDS = 4
"""That are told."""


def kinds_of(operators: Sequence[str]) -> str:
    """Return how many there are of each kind of some operators, the most frequent ones."""
    return ", ".join(f"{count} {op}" for op, count in Counter(operators).most_common(_MOST_KINDS))


def all_on_cpu(left: Sequence[str]) -> str:
    """Return what a model without libraries is called, of which the frontend `left` these operators to ONNX Runtime."""
    return f"all on {GENERATOR}{f' (but {kinds_of(left)}, which {FALLBACK} runs)' if left else ''}"


@dataclass(frozen=True)
class PlacedPart:
    """A part of a model that one backend runs as one call.

    Attributes:
        backend: Its name: "cpu" for our own kernels, "cuda" for those of such a target.
        call: The name of the kernel, or the key of the subgraph that a library runs.
        operators: The operators in it, by Relax's names: "nn.conv2d", in the order of the model.
        names: Of what they return, as in the model.
        steps_of: Operators of which it computes a step, and which are in the later part that ends them.
        seconds: What it takes in a run; None where that was not measured.
        runner_up: The backend that would be fastest of all others; None where none was measured.
        runner_up_seconds: What it takes there.
        device: That runs it in a call, of a model that is divided among several; "" elsewhere.
    """

    backend: str
    call: str
    operators: tuple[str, ...]
    names: tuple[str, ...]
    steps_of: tuple[str, ...] = ()
    seconds: float | None = None
    runner_up: str | None = None
    runner_up_seconds: float | None = None
    device: str = ""

    @property
    def place(self) -> str:
        """The backend, and the device where that is told."""
        return f"{self.backend} on {self.device}" if self.device else self.backend

    @property
    def is_left(self) -> bool:
        """Whether the frontend left it to ONNX Runtime, where no placement says so."""
        return self.backend == FALLBACK and not library_of(self.call)

    @property
    def what(self) -> str:
        """What it is of: its operators, or else those of which it is a step, or else the name of the kernel that is
        called, as of one that brings a tensor to another order."""
        if self.operators:
            return kinds_of(self.operators)
        step = f"a step of {', '.join(dict.fromkeys(self.steps_of)) or 'what reads it'}"
        return step if self.steps_of or library_of(self.call) else self.call


@dataclass(frozen=True)
class ModelPlacement:
    """Where one form of a model runs.

    Attributes:
        parts: In the order they run; each operator that is not computed while compiling is in one of them.
        transfers: How many tensors one backend makes, or the caller gives, and another one reads.
        seconds: Of a whole run, where placements were measured; None elsewhere.
        all_cpu_seconds: With our own kernels alone, measured beside that.
    """

    parts: tuple[PlacedPart, ...] = ()
    transfers: int = 0
    seconds: float | None = None
    all_cpu_seconds: float | None = None

    @property
    def backends(self) -> tuple[str, ...]:
        """Names of those that run parts, in the order in which they first do."""
        return tuple(dict.fromkeys(part.backend for part in self.parts))

    def __str__(self) -> str:
        """Return one line: operators, parts and time by backend, and transfers."""
        if not self.parts:
            return "nothing is left to run"
        each = ", ".join(map(self._of, dict.fromkeys(part.place for part in self.parts)))
        transfers = f", {counted(self.transfers, 'transfer')}" if len(self.backends) > 1 else ""
        whole = "" if self.seconds is None else f"; a run takes {self.seconds * 1e3:.3f} ms"
        left = [op for part in self.parts if part.is_left for op in part.operators]
        ours = "" if self.all_cpu_seconds is None else f", {all_on_cpu(left)} {self.all_cpu_seconds * 1e3:.3f} ms"
        return f"{each}{transfers}{whole}{ours}"

    def _of(self, place: str) -> str:
        parts = [part for part in self.parts if part.place == place]
        count = sum(len(part.operators) for part in parts)
        known = [part.seconds for part in parts if part.seconds is not None]
        took = f" ({sum(known) * 1e3:.3f} ms)" if len(known) == len(parts) else ""
        what = "" if count else f": {kinds_of([part.what for part in parts])}"
        return f"{place}: {counted(count, 'operator')} in {counted(len(parts), 'call')}{took}{what}"


@dataclass(frozen=True)
class NoFormYet(ModelPlacement):
    """Of a module with open dimensions of which no form is made.

    Attributes:
        told: What becomes of its forms, and what answers calls meanwhile.
    """

    told: tuple[str, ...] = ()

    def __str__(self) -> str:
        """Return one line: that there is no form yet, and what is told."""
        return "; ".join(["no form is made yet", *self.told])


def placement_of(form: Specialization, generator: str) -> ModelPlacement:
    """Return where a form of a model runs.

    Args:
        generator: The name of the backend that wrote its kernels: `Settings.generator`.
    """
    if form.code is None and not form.graph().calls:
        nodes = form.fallbacks
        times = next((form.times.parts[key] for key in form.subgraphs if key in form.times.parts), PartTimes())
        whole = PlacedPart(
            FALLBACK, "", tuple(node.op for node in nodes), tuple(node.node for node in nodes),
            seconds=times.seconds, runner_up=times.runner_up or None, runner_up_seconds=times.runner_up_seconds,
        )  # fmt: skip
        return ModelPlacement((whole,))
    return placement_in(form.graph(), form.times, form.kernels, generator)


def placement_in(
    graph: ModelGraph,
    times: PlacementTimes,
    kernels: Mapping[str, KernelInfo] = MappingProxyType({}),
    generator: str = GENERATOR,
) -> ModelPlacement:
    """Return where the model of `graph` runs, with what was measured of it; `kernels` and `generator` are as of
    `backends_of`."""
    inside, backends = _operators_of(graph), backends_of(graph.calls, kernels, generator)
    parts = tuple(
        _part(graph, position, inside, times.parts.get(call.op, PartTimes()), backends[position])
        for position, call in enumerate(graph.calls)
        if call.kind != "input"
    )
    return ModelPlacement(parts, _transfers(graph), times.seconds, times.all_cpu_seconds)


def backends_of(
    calls: Sequence[GraphCall], kernels: Mapping[str, KernelInfo], generator: str = GENERATOR
) -> tuple[str, ...]:
    """Return the name of the backend that runs each call.

    Args:
        kernels: What is known of those that are called, by name: a library of a device runs some, whose templates have
            its name.
        generator: Wrote the other kernels; the caller's inputs are where these run.
    """
    names = set(libraries())
    run_by = {name: info.template for name, info in kernels.items() if info.template in names}
    return tuple(_host_library(call) or run_by.get(call.op, generator) for call in calls)


def _host_library(call: GraphCall) -> str:
    """Return the library that runs a call on memory of the host; "" of a kernel, and of a device's library, which reads
    what kernels do."""
    return library_of(call.op) or FALLBACK if call.kind == "fallback" else ""


def _operators_of(graph: ModelGraph) -> dict[int, list[int]]:
    """Return the operators that each call computes, or a step of them; the last call of one ends it."""
    found: dict[int, list[int]] = {}
    for position, operator in enumerate(graph.operators):
        for call in operator.calls if operator.op != "input" and operator.how != FOLDED else ():
            found.setdefault(call, []).append(position)
    return found


def _part(
    graph: ModelGraph, position: int, inside: Mapping[int, Sequence[int]], times: PartTimes, backend: str
) -> PlacedPart:
    """Return the part that the call at a position is, which a backend runs; `inside` are the operators of each."""
    call, here = graph.calls[position], [graph.operators[each] for each in inside.get(position, ())]
    ended = [operator for operator in here if max(operator.calls) == position]
    return PlacedPart(
        backend=backend,
        call=call.op,
        operators=tuple(operator.op for operator in ended),
        names=tuple(operator.name for operator in ended),
        steps_of=tuple(operator.op for operator in here if operator not in ended),
        seconds=times.seconds,
        runner_up=times.runner_up or None,
        runner_up_seconds=times.runner_up_seconds,
    )


def _transfers(graph: ModelGraph) -> int:
    """Return how many tensors are read where they were not made: by each backend once."""
    return len(set(_handed_over(graph)))


def _handed_over(graph: ModelGraph) -> Iterator[tuple[int, str]]:
    for call in graph.calls:
        for read in call.reads:
            if _host_library(graph.calls[read.source]) != _host_library(call):
                yield read.source, _host_library(call)
