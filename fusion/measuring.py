"""What measurements add to a compilation: chains and points that are chosen by those of before, and of
`effort="balanced"` and "max", and points that a model of this machine ranks."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm
from tvm import relax, tirx

from backends.backend import KernelCompiler
from backends.tensorir.result import Kernel
from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion.bindings import Bindings
from fusion.choose_layout import LayoutChoice, by_estimate
from fusion.context import Context
from fusion.errors import ShapeError
from fusion.facts import PassResult, TellingPass
from fusion.lowered_graphs import LoweredGraph
from fusion.module.build import plan_calls
from fusion.module.kernel_library import KernelLibrary
from fusion.module.random_inputs import random_inputs
from fusion.options import FAST, MAX
from fusion.passes.lift_weights import lift_weights
from fusion.signature import TensorSpec
from fusion.system.temporary_folder import temporary_folder
from partition.profitability import Profitability
from tuning.chosen import Chosen
from tuning.limits import Limits

if TYPE_CHECKING:
    from tuning.chains import MeasureChains
    from tuning.known import Knowledge
    from tuning.layouts import LayoutForm, MeasureLayouts
    from tuning.machine_model import MachineModel
    from tuning.measuring_session import MeasuringSession
    from tuning.network import Network

_log = logging.getLogger("fusion.tuning")
_CHAIN_SECONDS = 10.0
_LAYOUT_SECONDS = 5.0
_POINT_SECONDS = 30.0
"""For building and measuring all candidates of all kernels of a model, where the deadline of the compilation is not
sooner."""
MAX_SECONDS = 600.0
"""The same, where a search is to end by itself."""
_BALANCED = Limits(points=8)
"""Of each kernel."""
SEARCHED = Limits(together=48)
"""Points of a model in a round: the fewer, the more the search knows; a round takes a second beside them."""
_ROOM = 64 << 20
"""Bytes of temporary files beside the weights: four times what the code of the largest model of the zoo takes."""


@dataclass(frozen=True)
class Bench:
    """What it takes to measure.

    Attributes:
        toolchain: Compiles candidates.
        session: Runs them, in a process of its own.
        folder: A folder for temporary files.
    """

    toolchain: KernelLibrary
    session: MeasuringSession
    folder: Path


@dataclass(frozen=True)
class Measuring:
    """Measures chains and kernels during a compilation.

    Attributes:
        knowledge: What was measured before; None if the database is not to be read.
        bench: None if nothing is to be measured.
        chains: Decides by measurement whether a chain of anchors becomes one kernel; None without a bench.
        layouts: Decides by measurement between two layouts; None without a bench.
        refusal: Why there is no bench although the effort asks for one.
    """

    ctx: Context
    knowledge: Knowledge | None = None
    bench: Bench | None = None
    chains: MeasureChains | None = None
    layouts: MeasureLayouts | None = None
    refusal: str = ""

    def profitability(self) -> Profitability:
        """Return the function that decides which chains stay in parts. With a bench it measures those whose estimates
        are close."""
        by_estimate = self.ctx.compiler.why_not_fused
        if self.knowledge is None or self.chains is not None:
            return self.chains or by_estimate
        # Here, not above: the other efforts measure nothing.
        from tuning.chains import RecallChains

        return RecallChains(self.knowledge, by_estimate)

    def layout(self) -> LayoutChoice:
        """Return what chooses between two layouts of a graph. With a bench it measures them."""
        if self.knowledge is None:
            return by_estimate(self.ctx.compiler)
        # Here, not above: the other efforts measure nothing.
        from tuning.layouts import RecallLayouts

        return MeasuredLayout(self.ctx.compiler, self.layouts or RecallLayouts(self.knowledge))

    def passes(self, inputs: tuple[TensorSpec, ...]) -> list[TellingPass[Chosen]]:
        """Return the passes that choose points for the kernels, to be run just before these are scheduled."""
        if self.knowledge is not None and self.bench is not None:
            return [MeasureKernels(self.ctx, self.knowledge, self.bench, inputs)]
        if self.knowledge is None and self.ctx.model is None:
            return []
        return [RecallKernels(self.ctx.compiler, self.knowledge, self.ctx.model)]

    def notes(self) -> list[str]:
        """Return what was measured of chains and layouts, a sentence each, or why nothing was."""
        if self.refusal:
            return [f"nothing was measured: {self.refusal}"]
        return [note for each in (self.chains, self.layouts) if each is not None for note in each.notes]


@contextmanager
def measuring(ctx: Context) -> Iterator[Measuring]:
    """Set up what measures during a compilation, as far as the effort asks for it. If this system cannot measure, the
    notes say why."""
    if ctx.effort == FAST and ctx.database is None:
        yield Measuring(ctx)
        return
    # Here, not above: without them nothing is measured.
    from tuning.chains import MeasureChains
    from tuning.forms_bench import FormsBench
    from tuning.known import Knowledge
    from tuning.layouts import MeasureLayouts
    from tuning.measuring_session import MeasuringSession

    knowledge, toolchain = Knowledge.of(ctx.database, ctx.compiler), KernelLibrary(ctx.compiler)
    refusal = "" if ctx.effort == FAST else toolchain.refusal()
    if ctx.effort == FAST or refusal:
        yield Measuring(ctx, knowledge, refusal=refusal)
        return

    with temporary_folder(_ROOM) as folder, MeasuringSession(folder) as session:
        bench = FormsBench(ctx.compiler, toolchain, session, folder)
        seconds = ctx.deadline.within(_CHAIN_SECONDS).left
        chains = MeasureChains(knowledge, bench, seconds, ctx.compiler.why_not_fused)
        layouts = MeasureLayouts(knowledge, bench, ctx.deadline.within(_LAYOUT_SECONDS).left)
        yield Measuring(ctx, knowledge, Bench(toolchain, session, folder), chains, layouts)


@dataclass(frozen=True)
class MeasuredLayout:
    """A `LayoutChoice` by what was measured, before or now; by estimate where that is not known."""

    compiler: KernelCompiler
    decide: Callable[[tuple[LayoutForm, LayoutForm], int], int]

    def __call__(self, lying: LoweredGraph, moved: LoweredGraph) -> LoweredGraph:
        """Return the graph to use."""
        estimate = by_estimate(self.compiler)
        if any(isinstance(value, relax.If) for value in Bindings.of(lying.grouped.mod["main"]).values.values()):
            return estimate(lying, moved)  # which calls there are, a run decides
        try:
            forms = self._form(lying), self._form(moved)
            return (lying, moved)[self.decide(forms, int(forms[1].cycles < forms[0].cycles))]
        except MemoryError:
            raise
        except Exception:  # TVM raises whatever it does, of a kernel that has no text for one
            _log.warning("two layouts could not be compared, and the estimate decides", exc_info=True)
            return estimate(lying, moved)

    def _form(self, graph: LoweredGraph) -> LayoutForm:
        from tuning.layouts import LayoutForm  # here, not above: only what measures needs it

        made = ScheduleKernels(self.compiler.schedule).run(graph.grouped.mod)
        scheduled, _ = lift_weights(made.mod)
        _, plan = plan_calls(scheduled, len(graph.grouped.mod["main"].params))
        return LayoutForm(made.fact.by_name, plan)


@dataclass(frozen=True)
class RecallKernels(TellingPass[Chosen]):
    """Chooses points without measuring: those that were measured to be faster than the default, and for other kernels
    those that the learned model of this machine expects to be. The module stays as it is."""

    compiler: KernelCompiler
    knowledge: Knowledge | None
    model: MachineModel | None
    name: str = "recall_kernels"

    def run(self, mod: tvm.IRModule) -> PassResult[Chosen]:
        """Return `mod` and the points."""
        from tuning.points import recall
        from tuning.rank import rank

        funcs = kernels_of(mod)
        known = {} if self.knowledge is None else self.knowledge.kernels(funcs)
        recalled = Chosen() if self.knowledge is None else recall(known)
        if self.model is None:
            return PassResult(mod, recalled)
        measured = {name for name, kernel in known.items() if kernel.is_known}
        rest = {name: func for name, func in funcs.items() if name not in measured}
        ranked = rank(rest, self.compiler, self.model)
        seconds = {name: took for name, took in recalled.seconds.items() if name not in ranked.points}
        notes = (*recalled.notes, *ranked.notes)
        return PassResult(mod, Chosen({**recalled.points, **ranked.points}, seconds, notes))


@dataclass(frozen=True)
class MeasureKernels(TellingPass[Chosen]):
    """Chooses points by measuring them within the network. The module stays as it is."""

    ctx: Context
    knowledge: Knowledge
    bench: Bench
    inputs: tuple[TensorSpec, ...]
    name: str = "measure_kernels"

    def run(self, mod: tvm.IRModule) -> PassResult[Chosen]:
        """Return `mod` and the points."""
        try:
            arrays = list(random_inputs(self.inputs).values())
            return PassResult(mod, self._choose(mod, arrays))
        except (OSError, ShapeError) as error:
            return PassResult(mod, Chosen(notes=(f"no kernel was measured: {error}",)))

    def _choose(self, mod: tvm.IRModule, arrays: list[np.ndarray]) -> Chosen:
        # Here, not above: only what measures needs it.
        from tuning.points import ChoosePoints

        bench = self.bench
        made = read_network(mod, arrays, self.knowledge.compiler)
        is_max = self.ctx.effort == MAX
        choose = ChoosePoints(
            knowledge=self.knowledge,
            toolchain=bench.toolchain,
            session=bench.session,
            folder=bench.folder,
            seconds=self.ctx.deadline.within(MAX_SECONDS if is_max else _POINT_SECONDS).left,
            limits=SEARCHED if is_max else _BALANCED,
            goes_on=is_max,
            machine=self.ctx.model,
        )
        return choose(made.kernels, made.network, made.cycles)


@dataclass(frozen=True)
class KernelNetwork:
    """A model as a tuning job sees it.

    Attributes:
        kernels: By name, scheduled at their default points.
        network: The calls that they make up.
        cycles: By name, the estimated cycles of all calls of the kernel together.
    """

    kernels: Mapping[str, Kernel]
    network: Network
    cycles: Mapping[str, float]


def read_network(mod: tvm.IRModule, arrays: Sequence[np.ndarray], compiler: KernelCompiler) -> KernelNetwork:
    """Return the network of an unscheduled module, with the inputs `arrays`."""
    from tuning.network import Network  # here, not above: only what measures needs it

    made = ScheduleKernels(compiler.schedule).run(mod)
    scheduled, weights = lift_weights(made.mod)
    _, plan = plan_calls(scheduled, len(arrays))
    calls = Counter(call.kernel for call in plan.calls)
    called = {name: made.fact.by_name[name] for name in calls}
    cycles = {name: called[name].made.cycles * count for name, count in calls.items()}
    return KernelNetwork(called, Network(plan, weights, arrays), cycles)


def kernels_of(mod: tvm.IRModule) -> dict[str, tirx.PrimFunc]:
    """Return the kernels of a module by name."""
    return {str(name.name_hint): func for name, func in mod.functions.items() if isinstance(func, tirx.PrimFunc)}
