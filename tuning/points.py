"""Measures the points of templates' spaces in the network and takes the fastest of each kernel."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isinf
from pathlib import Path
from typing import TYPE_CHECKING

import tvm_ffi

from backends.backend import KernelCompiler
from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.space import Point
from backends.tensorir.stages import dtype_of, shape_of
from tuning.build import build_library
from tuning.candidates import candidates
from tuning.experiment import Call, Experiment, Step
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
class Form:
    """A form of a kernel; `point` is None for the default."""

    symbol: str
    made: Scheduled
    point: Point | None = None


@dataclass(frozen=True)
class Chosen:
    """What was measured.

    Attributes:
        points: Of the kernels, by name, that are faster at another point than the default.
        notes: What to say of it, one sentence each.
    """

    points: Mapping[str, Point] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class ChoosePoints:
    """Kernels in their default form -> the points at which they are fastest.

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
            kernels: By name, in their default form.
            estimates: Of all calls of each kernel together, in any unit.
        """
        started = time.perf_counter()
        forms = self._forms(kernels, estimates, started + _EMITTING * self.seconds)
        libraries = self._build(forms, started + _BUILDING * self.seconds)
        if not libraries:
            return Chosen({}, ("no kernel was measured: there is no other form of any, or none could be built",))
        left = started + self.seconds - time.perf_counter()
        results = self.session.run(self._experiment(forms, libraries, network, left))
        if results.failure:
            return Chosen({}, (f"no kernel was measured: {results.failure}",))
        notes = tuple(_notes(forms, results, time.perf_counter() - started))
        if results.after >= results.before:
            return Chosen({}, notes)
        points = {name: some[v.form].point for (name, some), v in zip(forms.items(), results.verdicts, strict=True)}
        return Chosen({name: point for name, point in points.items() if point is not None}, notes)

    def _forms(
        self, kernels: Mapping[str, Kernel], estimates: Mapping[str, float], until: float
    ) -> dict[str, list[Form]]:
        """Return the forms of all kernels, those with the most time first; the default alone of what comes too late."""
        worth = sum(estimates.values()) * _LEAST_SHARE
        forms: dict[str, list[Form]] = {}
        for name in sorted(kernels, key=lambda name: -estimates.get(name, 0)):
            found = [Form(f"k{len(forms)}", kernels[name].made)]
            if estimates.get(name, 0) >= worth and time.perf_counter() < until:
                found += self._others(kernels[name], found[0].symbol)
            forms[name] = found
        return forms

    def _others(self, kernel: Kernel, symbol: str) -> Iterator[Form]:
        """Yield the forms beside the default."""
        choices = self.compiler.choices(kernel.source)
        seen = [kernel.made.func]
        for point in () if choices is None else candidates(choices.space, _MOST, _ALIKE):
            made = self.compiler.schedule(kernel.source, point)
            if not made.note and not any(tvm_ffi.structural_equal(made.func, func) for func in seen):
                yield Form(f"{symbol}_{len(seen)}", made, point)
                seen.append(made.func)

    def _build(self, forms: dict[str, list[Form]], until: float) -> list[Path]:
        """Write libraries of all default forms and as many of the others as there is time for; the rest leaves
        `forms`."""
        defaults = [(some[0].symbol, some[0].made.func) for some in forms.values()]
        others = [(form.symbol, form.made.func) for some in forms.values() for form in some[1:]]
        libraries = [self.folder / "defaults.so", self.folder / "others.so"]
        whole = build_library(defaults, self.toolchain, libraries[0], lambda: False)
        built = build_library(others, self.toolchain, libraries[1], lambda: time.perf_counter() > until)
        for name, some in forms.items():
            forms[name] = [some[0], *(form for form in some[1:] if form.symbol in built)]
        return libraries if built and len(whole) == len(defaults) else []

    def _experiment(
        self, forms: Mapping[str, list[Form]], libraries: list[Path], network: Network, seconds: float
    ) -> Experiment:
        memory, order = Memory(network), list(forms)
        steps = tuple(
            Step(
                order.index(call.kernel),
                tuple((Call(form.symbol, _arguments(call, form, memory)),) for form in forms[call.kernel]),
                tuple((memory.tensor(condition.tensor), condition.value) for condition in call.conditions),
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


def _arguments(call: KernelCall, form: Form, memory: Memory) -> tuple[int, ...]:
    """Return the tensors of a call in this form, which may take its weights in another order."""
    return tuple(
        memory.tensor(argument)
        if argument.shape == shape_of(parameter)
        else memory.unmade(argument, shape_of(parameter), dtype_of(parameter))
        for argument, parameter in zip(call.arguments, form.made.func.params, strict=True)
    )


def _notes(forms: Mapping[str, list[Form]], results: Results, seconds: float) -> Iterator[str]:
    order = list(forms)
    for kernel, form in results.crashed:
        yield f"{order[kernel]}: {forms[order[kernel]][form].made.tile} crashed when it was measured"
    if isinf(results.before):
        yield f"no kernel was measured: {seconds:.1f} s were not enough"
        return
    several = {name: verdict for name, verdict in zip(order, results.verdicts, strict=True) if verdict.measured > 1}
    forms_measured = sum(verdict.measured for verdict in several.values())
    measured = f"measured {forms_measured} forms of {len(several)} kernels in {seconds:.1f} s"
    run = f"kernels of a run took {results.before * 1e3:.3f} ms before and {results.after * 1e3:.3f} after"
    if results.after >= results.before:
        yield f"{measured}, none of which made the model faster: the {run}"
        return
    yield f"{measured}: the {run}"
    for name, verdict in several.items():
        default, chosen = forms[name][0].made, forms[name][verdict.form].made
        change = f"{verdict.default_s * 1e6:.1f} us by {default.tile}, {verdict.seconds * 1e6:.1f} by {chosen.tile}"
        if verdict.form:
            yield f"{name}: {change}, the fastest of {verdict.measured}"
