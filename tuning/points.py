"""Measures the points of templates' spaces in the network and takes the fastest of each kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

import tvm_ffi

from backends.backend import KernelCompiler
from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Point
from backends.tensorir.stages import dtype_of, shape_of
from tuning.build import build_library
from tuning.candidates import promising_points
from tuning.chosen import Chosen
from tuning.experiment import Experiment, LibraryCall, Step, StepCondition
from tuning.measuring_session import MeasuringSession, Results
from tuning.network import Memory, Network
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
class ChoosePoints:
    """Kernels at their default point -> the points at which they are fastest.

    Attributes:
        toolchain: Builds.
        session: Measures.
        folder: For files.
        seconds: What all of it may take.
    """

    compiler: KernelCompiler
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
        candidates = self._candidates(kernels, estimates, started + _EMITTING * self.seconds)
        libraries = self._build(candidates, started + _BUILDING * self.seconds)
        if not libraries:
            return Chosen({}, ("no kernel was measured: there is nothing but the defaults, or they cannot be built",))
        left = started + self.seconds - time.perf_counter()
        results = self.session.run(self._experiment(candidates, libraries, network, left))
        if results.failure:
            return Chosen({}, (f"no kernel was measured: {results.failure}",))
        notes = tuple(_notes(candidates, results, time.perf_counter() - started))
        if results.after >= results.before:
            return Chosen({}, notes)
        chosen = zip(candidates.items(), results.decisions, strict=True)
        points = {name: some[decision.candidate].point for (name, some), decision in chosen}
        return Chosen({name: point for name, point in points.items() if point is not None}, notes)

    def _candidates(
        self, kernels: Mapping[str, Kernel], estimates: Mapping[str, float], until: float
    ) -> dict[str, list[Candidate]]:
        """Return the candidates for all kernels, those with the most time first; the default alone of what is late."""
        worth = sum(estimates.values()) * _LEAST_SHARE
        candidates: dict[str, list[Candidate]] = {}
        for name in sorted(kernels, key=lambda name: -estimates.get(name, 0)):
            found = [Candidate(f"k{len(candidates)}", kernels[name].made)]
            if estimates.get(name, 0) >= worth and time.perf_counter() < until:
                found += self._others(kernels[name], found[0].symbol)
            candidates[name] = found
        return candidates

    def _others(self, kernel: Kernel, symbol: str) -> Iterator[Candidate]:
        """Yield the candidates beside the default."""
        choices = self.compiler.choices(kernel.source)
        seen = [kernel.made.func]
        for point in () if choices is None else promising_points(choices.space, _MOST, _ALIKE):
            made = self.compiler.schedule(kernel.source, point)
            if not made.note and not any(tvm_ffi.structural_equal(made.func, func) for func in seen):
                yield Candidate(f"{symbol}_{len(seen)}", made, point)
                seen.append(made.func)

    def _build(self, candidates: dict[str, list[Candidate]], until: float) -> list[Path]:
        """Write libraries of all default candidates and as many of the others as there is time for; the rest leaves
        `candidates`."""
        defaults = [(some[0].symbol, some[0].made.func) for some in candidates.values()]
        others = [(candidate.symbol, candidate.made.func) for some in candidates.values() for candidate in some[1:]]
        libraries = [self.folder / "defaults.so", self.folder / "others.so"]
        whole = build_library(defaults, self.toolchain, libraries[0], lambda: False)
        built = build_library(others, self.toolchain, libraries[1], lambda: time.perf_counter() > until)
        for name, some in candidates.items():
            candidates[name] = [some[0], *(candidate for candidate in some[1:] if candidate.symbol in built)]
        return libraries if built and len(whole) == len(defaults) else []

    def _experiment(
        self, candidates: Mapping[str, list[Candidate]], libraries: list[Path], network: Network, seconds: float
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
            threads=self.compiler.threads,
            seconds=seconds,
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
