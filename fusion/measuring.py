"""What `effort="balanced"` adds to a compilation: chains and points that are chosen by measuring them here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import tvm

from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion.context import Context
from fusion.errors import ShapeError
from fusion.facts import PassResult, TellingPass
from fusion.module.build import plan_calls
from fusion.module.kernel_library import KernelLibrary
from fusion.module.random_inputs import random_inputs
from fusion.module.shared_library import temporary_folder
from fusion.options import BALANCED
from fusion.passes.lift_weights import lift_weights
from fusion.signature import TensorSpec
from partition.profitability import Profitability
from tuning.chosen import Chosen

if TYPE_CHECKING:
    from tuning.chains import MeasureChains
    from tuning.measuring_session import MeasuringSession

_CHAIN_SECONDS = 10.0
_POINT_SECONDS = 30.0
"""For building and measuring all candidates of all kernels of a model."""
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
    """What measures chains and kernels; without a bench nothing does.

    Attributes:
        refusal: Why there is no bench though the effort asks for one.
    """

    ctx: Context
    bench: Bench | None = None
    chains: MeasureChains | None = None
    refusal: str = ""

    def profitability(self) -> Profitability:
        """Return what says which chains are left in parts: it measures where the estimate is a near thing."""
        return self.chains or self.ctx.compiler.why_not_fused

    def passes(self, inputs: tuple[TensorSpec, ...]) -> list[MeasureKernels]:
        """Return what tells faster points of the kernels when it gets the module in which they are to get loops."""
        return [] if self.bench is None else [MeasureKernels(self.ctx, self.bench, inputs)]

    def notes(self) -> list[str]:
        """Return what was measured of chains, one sentence each, or why nothing was."""
        if self.refusal:
            return [f"nothing was measured: {self.refusal}"]
        return [] if self.chains is None else self.chains.notes


@contextmanager
def measuring(ctx: Context) -> Iterator[Measuring]:
    """Make a bench where the effort asks for it and this system has what it takes; the notes say where it has not."""
    toolchain = KernelLibrary(ctx.compiler)
    if ctx.effort != BALANCED or toolchain.refusal():
        yield Measuring(ctx, refusal=toolchain.refusal() if ctx.effort == BALANCED else "")
        return
    # Here, not above: the other efforts measure nothing.
    from tuning.chains import MeasureChains
    from tuning.measuring_session import MeasuringSession

    with temporary_folder(_ROOM) as folder, MeasuringSession(folder) as session:
        chains = MeasureChains(
            compiler=ctx.compiler,
            by_estimate=ctx.compiler.why_not_fused,
            toolchain=toolchain,
            session=session,
            folder=folder,
            seconds=_CHAIN_SECONDS,
        )
        yield Measuring(ctx, Bench(toolchain, session, folder), chains)


@dataclass(frozen=True)
class MeasureKernels(TellingPass[Chosen]):
    """Unscheduled PrimFuncs -> the same, and the points of their spaces that are faster in the network than the
    default."""

    ctx: Context
    bench: Bench
    inputs: tuple[TensorSpec, ...]
    name: str = "measure_kernels"

    def run(self, mod: tvm.IRModule) -> PassResult[Chosen]:
        """Return `mod` itself, and the points."""
        try:
            arrays = list(random_inputs(self.inputs).values())
            return PassResult(mod, self._choose(mod, arrays))
        except (OSError, ShapeError) as error:
            return PassResult(mod, Chosen(notes=(f"no kernel was measured: {error}",)))

    def _choose(self, mod: tvm.IRModule, arrays: list[np.ndarray]) -> Chosen:
        # Here, not above: only what measures needs them.
        from tuning.network import Network
        from tuning.points import ChoosePoints

        ctx, bench = self.ctx, self.bench
        made = ScheduleKernels(ctx.compiler.schedule).run(mod)
        scheduled, weights = lift_weights(made.mod)
        _, plan = plan_calls(scheduled, len(self.inputs))
        calls = Counter(call.kernel for call in plan.calls)
        called = {name: made.fact.by_name[name] for name in calls}
        cycles = {name: called[name].made.cycles * count for name, count in calls.items()}
        choose = ChoosePoints(ctx.compiler, bench.toolchain, bench.session, bench.folder, _POINT_SECONDS)
        return choose(called, Network(plan, weights, arrays), cycles)
