"""Measures the points of templates' spaces in the network and takes the fastest of each kernel."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

import tvm_ffi

from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Choices, Point
from backends.tensorir.stages import dtype_of, shape_of
from tuning.build import build_library
from tuning.candidates import promising_points
from tuning.chosen import Chosen
from tuning.experiment import Experiment, LibraryCall, Step, StepCondition
from tuning.known import Knowledge, KnownKernel
from tuning.measuring_session import MeasuringSession, Results
from tuning.network import Memory, Network
from tuning.record import Record
from tuning.toolchain import Toolchain

if TYPE_CHECKING:
    from fusion.module.plan import KernelCall

_MOST = 8
"""Points of a kernel beside its default."""
_ALIKE = 3
_LEAST_SHARE = 0.002
"""Of the network's estimated time, of kernels that are worth it."""
_EMITTING, _BUILDING = 0.25, 0.6
"""Shares of the time by when loops are written, and code is made of them."""


@dataclass(frozen=True)
class Candidate:
    """A kernel with the loops of one point of its space, under a name of its own; `point` is None for the default."""

    symbol: str
    made: Scheduled
    point: Point | None = None


@dataclass(frozen=True)
class _BuiltCandidates:
    """What was built of all candidates.

    Attributes:
        libraries: With the defaults and the others; none where they cannot be measured.
        late: Kernels of which there was no time for some.
    """

    libraries: tuple[Path, ...]
    late: frozenset[str]


@dataclass(frozen=True)
class ChoosePoints:
    """Kernels at their default point -> the points at which they are fastest.

    Attributes:
        knowledge: What was measured before, which is not measured again.
        toolchain: Builds.
        session: Measures.
        folder: For files.
        seconds: What all of it may take.
    """

    knowledge: Knowledge
    toolchain: Toolchain
    session: MeasuringSession
    folder: Path
    seconds: float

    def __call__(self, kernels: Mapping[str, Kernel], network: Network, estimates: Mapping[str, float]) -> Chosen:
        """Return the points.

        Args:
            kernels: By name, at their default point.
            estimates: Of all calls of each kernel together, in any unit.
        """
        started = time.perf_counter()
        known = self.knowledge.kernels({name: kernel.source for name, kernel in kernels.items()})
        candidates = self._candidates(kernels, known, estimates, started + _EMITTING * self.seconds)
        if all(len(some) == 1 for some in candidates.values()):
            return recall(known)
        built = self._build(candidates, started + _BUILDING * self.seconds)
        if not built.libraries:
            return recall(known, ["no kernel was measured: the candidates cannot be built, or not in time"])
        left = max(0.0, started + self.seconds - time.perf_counter())  # what has begun to be built is not stopped
        results = self.session.run(self._experiment(candidates, built.libraries, network, left))
        if results.failure:
            return recall(known, [f"no kernel was measured: {results.failure}"])
        records = list(_records(candidates, known, results, built.late))
        self.knowledge.keep(records)
        now = {name: kernel.with_records(records) for name, kernel in known.items()}
        said = _notes(candidates, results, time.perf_counter() - started)
        return replace(recall(now), notes=(*recall(known).notes, *said))

    def _candidates(
        self,
        kernels: Mapping[str, Kernel],
        known: Mapping[str, KnownKernel],
        estimates: Mapping[str, float],
        until: float,
    ) -> dict[str, list[Candidate]]:
        """Return the candidates for all kernels, those with the most time first; of what is known the best alone, and
        of what is late the default."""
        worth = sum(estimates.values()) * _LEAST_SHARE
        candidates: dict[str, list[Candidate]] = {}
        for name in sorted(kernels, key=lambda name: -estimates.get(name, 0)):
            symbol, kernel = f"k{len(candidates)}", kernels[name]
            if name in known and known[name].is_known:
                candidates[name] = [self._best(known[name], kernel, symbol)]
                continue
            candidates[name] = [Candidate(symbol, kernel.made)]
            if name in known and estimates.get(name, 0) >= worth and time.perf_counter() < until:
                candidates[name] += self._others(known[name].choices, kernel, symbol)
        return candidates

    def _best(self, known: KnownKernel, kernel: Kernel, symbol: str) -> Candidate:
        point = known.best()
        made = kernel.made if point is None else self.knowledge.compiler.schedule(kernel.source, point)
        return Candidate(symbol, made, point)

    def _others(self, choices: Choices, kernel: Kernel, symbol: str) -> Iterator[Candidate]:
        """Yield the candidates beside the default."""
        seen = [kernel.made.func]
        for point in promising_points(choices.space, _MOST, _ALIKE):
            made = self.knowledge.compiler.schedule(kernel.source, point)
            if not made.note and not any(tvm_ffi.structural_equal(made.func, func) for func in seen):
                yield Candidate(f"{symbol}_{len(seen)}", made, point)
                seen.append(made.func)

    def _build(self, candidates: dict[str, list[Candidate]], until: float) -> _BuiltCandidates:
        """Write libraries of all default candidates and as many of the others as there is time for; the rest leaves
        `candidates`."""
        is_late = False

        def over() -> bool:
            nonlocal is_late
            is_late = is_late or time.perf_counter() > until
            return is_late

        defaults = [(some[0].symbol, some[0].made.func) for some in candidates.values()]
        others = [(candidate.symbol, candidate.made.func) for some in candidates.values() for candidate in some[1:]]
        libraries = [self.folder / "defaults.so", self.folder / "others.so"]
        whole = build_library(defaults, self.toolchain, libraries[0], lambda: False)
        built = build_library(others, self.toolchain, libraries[1], over)
        # Without a lack of time, what is not there cannot be built, now or later.
        missing = {name for name, some in candidates.items() if any(each.symbol not in built for each in some[1:])}
        for name, some in candidates.items():
            candidates[name] = [some[0], *(candidate for candidate in some[1:] if candidate.symbol in built)]
        are_there = built and len(whole) == len(defaults)
        return _BuiltCandidates(tuple(libraries) if are_there else (), frozenset(missing if is_late else ()))

    def _experiment(
        self, candidates: Mapping[str, list[Candidate]], libraries: Sequence[Path], network: Network, seconds: float
    ) -> Experiment:
        memory, order = Memory(network), list(candidates)
        steps = tuple(
            Step(
                order.index(call.kernel),
                tuple((_call_of(candidate, call, memory),) for candidate in candidates[call.kernel]),
                tuple(StepCondition(memory.tensor(condition.tensor), condition.value) for condition in call.conditions),
            )
            for call in network.plan.calls
        )
        data = self.folder / "data"
        memory.write(data)
        paths = tuple(map(str, libraries))
        storages, tensors = tuple(memory.storages), tuple(memory.tensors)
        return Experiment(
            libraries=paths,
            data=str(data),
            storages=storages,
            tensors=tensors,
            steps=steps,
            threads=self.knowledge.compiler.threads,
            seconds=seconds,
        )


def recall(known: Mapping[str, KnownKernel], notes: Sequence[str] = ()) -> Chosen:
    """Return what measurements of before say of kernels; `notes` are of what was done beside."""
    points = {name: point for name, kernel in known.items() if (point := kernel.best()) is not None}
    many = sum(kernel.is_known for kernel in known.values())
    said = f"{many} kernels are as measured before, {len(points)} of them not at their default"
    return Chosen(points, (*([said] if many else []), *notes))


def _records(
    candidates: Mapping[str, list[Candidate]], known: Mapping[str, KnownKernel], results: Results, late: Collection[str]
) -> Iterator[Record]:
    """Yield what was measured of kernels of which there were several candidates; of those that are `late` not the
    default, with which they would be known."""
    now = time.time()
    for (name, some), decision in zip(candidates.items(), results.decisions, strict=True):
        if len(some) == 1:
            continue
        wins = decision.candidate if results.after < results.before else 0
        for found in decision.times:
            if not found.candidate and name in late:
                continue
            point = some[found.candidate].point or known[name].choices.space.default
            yield Record(
                task=known[name].task,
                point=point.axes(),
                seconds=found.seconds,
                spread=found.spread,
                runs=found.runs,
                default_s=found.default_s,
                wins=0 < found.candidate == wins,
                measured_at=now,
            )


def _call_of(candidate: Candidate, call: KernelCall, memory: Memory) -> LibraryCall:
    """Return `call` as one of the candidate, which may take its weights in another order."""
    arguments = (
        memory.tensor(argument)
        if argument.shape == shape_of(parameter)
        else memory.placeholder(argument, shape_of(parameter), dtype_of(parameter))
        for argument, parameter in zip(call.arguments, candidate.made.func.params, strict=True)
    )
    return LibraryCall(candidate.symbol, tuple(arguments))


def _notes(candidates: Mapping[str, list[Candidate]], results: Results, seconds: float) -> Iterator[str]:
    order = list(candidates)
    for trial in results.crashed:
        name = order[trial.kernel]
        yield f"{name}: {candidates[name][trial.candidate].made.tile} crashed when it was measured"
    if isinf(results.before):
        yield f"no kernel was measured: {seconds:.1f} s were not enough"
        return
    several = {name: found for name, found in zip(order, results.decisions, strict=True) if found.measured > 1}
    count = sum(decision.measured for decision in several.values())
    measured = f"measured {count} candidates for {len(several)} kernels in {seconds:.1f} s"
    run = f"kernels of a run took {results.before * 1e3:.3f} ms before and {results.after * 1e3:.3f} after"
    if results.after >= results.before:
        yield f"{measured}, none of which made the model faster: the {run}"
        return
    yield f"{measured}: the {run}"
    for name, decision in several.items():
        default, chosen = candidates[name][0].made, candidates[name][decision.candidate].made
        change = f"{decision.default_s * 1e6:.1f} us by {default.tile}, {decision.seconds * 1e6:.1f} by {chosen.tile}"
        if decision.candidate:
            yield f"{name}: {change}, the fastest of {decision.measured}"
