"""What `effort="balanced"` adds to a compilation: chains and points that are chosen by measuring them here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import tvm

from backends.tensorir.schedule_kernels import ScheduleKernels
from backends.tensorir.space import Point
from fusion.context import Context
from fusion.errors import ShapeError
from fusion.module.build import plan_calls
from fusion.module.kernel_library import KernelLibrary
from fusion.module.random_inputs import random_inputs
from fusion.module.shared_library import temporary_folder
from fusion.options import BALANCED
from fusion.passes.lift_weights import lift_weights
from fusion.signature import TensorSpec
from partition.profitability import Profitability
from tuning.chains import JudgeChains
from tuning.measuring_session import MeasuringSession
from tuning.network import Network
from tuning.points import ChoosePoints

_CHAIN_SECONDS = 10.0
_POINT_SECONDS = 30.0
"""For building and measuring all forms of all kernels of a model."""
_ROOM = 64 << 20
"""Bytes of temporary files beside the weights: four times what the code of the largest model of the zoo takes."""


@dataclass(frozen=True)
class Bench:
    """What measuring needs.

    Attributes:
        toolchain: Builds.
        session: Runs what was built.
        folder: For files.
    """

    toolchain: KernelLibrary
    session: MeasuringSession
    folder: Path


@dataclass(frozen=True)
class Measuring:
    """Judges of chains and passes that measure; without a bench they do not.

    Attributes:
        points: Of kernels, by name, that are faster at another point of their space than its default.
        notes: What was measured, one sentence each.
    """

    ctx: Context
    bench: Bench | None
    points: dict[str, Point] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)

    def judge(self, judge: Profitability) -> Profitability:
        """Return a judge that measures where the answer of `judge`, which estimates, is a near thing."""
        if self.bench is None:
            return judge
        bench = self.bench
        return JudgeChains(
            self.ctx.compiler, judge, bench.toolchain, bench.session, bench.folder, _CHAIN_SECONDS, self.notes
        )

    def passes(self, inputs: tuple[TensorSpec, ...]) -> list[Callable[[tvm.IRModule], tvm.IRModule]]:
        """Return what fills `points` when it gets the module whose kernels are to get loops."""
        return [] if self.bench is None else [_MeasureKernels(self, self.bench, inputs)]


@contextmanager
def measuring(ctx: Context) -> Iterator[Measuring]:
    """Make a bench where the effort asks for it and this system has what it takes; the notes say where it has not."""
    toolchain = KernelLibrary(ctx.compiler)
    if ctx.effort != BALANCED or toolchain.refusal():
        notes = [f"nothing was measured: {toolchain.refusal()}"] if ctx.effort == BALANCED else []
        yield Measuring(ctx, None, notes=notes)
        return
    with temporary_folder(_ROOM) as folder, MeasuringSession(folder) as session:
        yield Measuring(ctx, Bench(toolchain, session, folder))


@dataclass(frozen=True)
class _MeasureKernels:
    """Unscheduled PrimFuncs -> the same; the points and notes of `measuring` are filled."""

    measuring: Measuring
    bench: Bench
    inputs: tuple[TensorSpec, ...]
    name: str = "measure_kernels"

    def __call__(self, mod: tvm.IRModule) -> tvm.IRModule:
        try:
            arrays = list(random_inputs(self.inputs).values())
            self._choose(mod, arrays)
        except (OSError, ShapeError) as error:
            self.measuring.notes.append(f"no kernel was measured: {error}")
        return mod

    def _choose(self, mod: tvm.IRModule, arrays: list[np.ndarray]) -> None:
        ctx, bench = self.measuring.ctx, self.bench
        kernels = ScheduleKernels(ctx.compiler.schedule)
        scheduled, weights = lift_weights(kernels(mod))
        _, plan = plan_calls(scheduled, len(self.inputs))
        calls = Counter(call.kernel for call in plan.calls)
        called = {name: kernels.scheduled[name] for name in calls}
        cycles = {name: called[name].made.cycles * count for name, count in calls.items()}
        choose = ChoosePoints(ctx.compiler, bench.toolchain, bench.session, bench.folder, _POINT_SECONDS)
        chosen = choose(called, Network(plan, weights, arrays), cycles)
        self.measuring.points.update(chosen.points)
        self.measuring.notes.extend(chosen.notes)
