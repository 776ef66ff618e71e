"""The public function `tune_machine`: what points of drawn kernels take on this machine, and what is learned of it."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import tvm

from fusion import context
from fusion.context import Context
from fusion.errors import OptionError
from fusion.machine_tuning.drawn import DrawnKernel, drawn_kernels
from fusion.machine_tuning.measure import TOGETHER, measure_kernels
from fusion.module.kernel_library import KernelLibrary
from fusion.options import BALANCED, read_budget
from fusion.system.cpu_load import QuietWait
from fusion.system.interrupts import keeping_interrupts
from fusion.threads import require_threads
from tuning.alone import measured_points
from tuning.cost_model import MeasuredSpace
from tuning.database import Database
from tuning.known import environment_of
from tuning.machine_model import LEAST_KERNELS, MachineModel
from tuning.model_store import ModelStore
from tuning.record import Record
from tuning.task import Environment
from tuning.workloads import draw_workloads

_SEED = 0
_WORKLOADS = 400
_POINTS = 32
"""Of a kernel beside its default."""
_RUNS = 15
"""Of a point: with 5, the logarithms of times of 16 drawn kernels' points are 5% from those of other runs, with 10 3.4%
and with 15 2.3% (two vCPUs of Zen 3). They take a fifth of the time that code does."""
_LEARNING = 0.1
"""Share of the budget that is left for learning."""
_WAITING = 0.1
"""Share of the budget that may pass in waiting for others to end what they do."""


@dataclass
class MachineTuning:
    """What `tune_machine` has done so far.

    Attributes:
        path: Of the database; the model is beside it.
        budget_s: What it may take.
        kernels, points: That have been measured, by this call or by those before.
        new: Kernels measured by this call.
        seconds: It has taken.
        waited_s: Of these, for other processes.
        busy: Kernels measured though others were using the machine.
        learned: Whether there is a model.
        errors: Of the families whose points it ranks, by how much it is wrong, as shares of a point's time. For the
            others the cost tables were seen to be as good.
    """

    path: Path
    budget_s: float
    kernels: int = 0
    points: int = 0
    new: int = 0
    seconds: float = 0.0
    waited_s: float = 0.0
    busy: int = 0
    learned: bool = False
    errors: dict[str, float] = field(default_factory=dict)

    @property
    def is_over(self) -> bool:
        """Whether the time for measuring has passed."""
        return self.seconds >= (1 - _LEARNING) * self.budget_s


def tune_machine(
    target: str | tvm.target.Target = "llvm",
    *,
    threads: int | None = None,
    budget: str | float = "10m",
    database: Any = None,
    on_progress: Callable[[MachineTuning], None] = lambda state: None,
) -> MachineTuning:
    """Measure kernels of operators drawn from the ranges of real networks, and keep a model of what they take: from
    then on `compile` ranks the points of kernels by it on this machine, with as many threads, and measures nothing.

    What has been measured is kept in the database whatever ends the call, Ctrl-C too, and the next call goes on there.

    Args:
        target, threads: As for `compile`.
        budget: What it may take: seconds, or a text such as "90s", "10m" or "1h". With 0, the model is made of what is
            there.
        database: The path of a file; by default the user's, in the cache folder. The model lies beside it.
        on_progress: Is called with the state so far, after each few kernels.

    Raises:
        OptionError: An option has a value that is not allowed, there is no place for what is measured, or the target
            is not this machine.
        ResourceError: There are too few CPUs for so many threads.
    """
    seconds = read_budget(budget)
    ctx = context.resolve(target, threads=threads, effort=BALANCED, database=database)
    refusal = KernelLibrary(ctx.compiler).refusal()
    if refusal:
        raise OptionError("this machine measures no kernels", why=refusal)
    require_threads(ctx.threads)
    if not isinstance(ctx.database, Database):
        raise OptionError("there is no place for what is measured", hint="name the file of a database: --db FILE")
    try:
        environment = environment_of(ctx.compiler)
    except OSError as error:
        raise OptionError("nobody can say what kernels are made by", why=str(error)) from error
    tuning = _Tuning(ctx, ctx.database, environment, MachineTuning(ctx.database.path, seconds), on_progress)
    try:
        with keeping_interrupts() as check:
            tuning.run(check)
    except (OSError, sqlite3.Error) as error:
        raise OptionError(f"the database {ctx.database.path} cannot be used", why=str(error)) from error
    return tuning.state


@dataclass
class _Tuning:
    ctx: Context
    database: Database
    environment: Environment
    state: MachineTuning
    on_progress: Callable[[MachineTuning], None]
    started: float = field(default_factory=time.perf_counter)
    measured: dict[str, list[MeasuredSpace]] = field(default_factory=dict)

    def run(self, check: Callable[[], None]) -> None:
        def look() -> None:
            check()
            self.on_progress(self._tick())

        quiet = QuietWait(_WAITING * self.state.budget_s, look)
        for kernels in self._some():
            check()
            records = self._known(kernels)
            missing = [kernel for kernel in kernels if not measured_points(kernel.question.known, records)]
            if missing and not self._tick().is_over:
                records = [*records, *self._measure(missing, check, quiet)]
            elif len(missing) == len(kernels):  # nor are those behind them, measured in order
                break
            self._learn_from(kernels, records)
            self.on_progress(self._tick())
        self._fit()

    def _some(self) -> Iterator[list[DrawnKernel]]:
        """Yield the drawn kernels, as many at a time as are measured together."""
        drawn = drawn_kernels(draw_workloads(_SEED, _WORKLOADS), self.ctx, _POINTS)
        while some := list(islice(drawn, TOGETHER)):
            yield some

    def _known(self, kernels: Sequence[DrawnKernel]) -> list[Record]:
        return self.database.find([kernel.question.known.task.key for kernel in kernels])

    def _measure(
        self, kernels: Sequence[DrawnKernel], check: Callable[[], None], quiet: QuietWait
    ) -> list[Record]:
        is_busy = quiet.wait()
        self.state.waited_s = quiet.waited_s
        records = measure_kernels(kernels, self.ctx, _RUNS, lambda: self._tick().is_over)
        check()
        self.database.add(records)
        found = len({record.task.key for record in records})
        self.state.new += found
        self.state.busy += found if is_busy else 0
        return records

    def _learn_from(self, kernels: Sequence[DrawnKernel], records: Sequence[Record]) -> None:
        for kernel in kernels:
            known = kernel.question.known
            points = measured_points(known, records)
            if points:
                self.measured.setdefault(known.choices.family, []).append(MeasuredSpace.of(known, points))
                self.state.kernels += 1
                self.state.points += len(points)

    def _fit(self) -> None:
        if self.state.kernels >= LEAST_KERNELS:
            model = MachineModel.fit(self.measured, self.environment, time.time())
            if not ModelStore.beside(self.database.path).write(model):
                raise OptionError(f"the model beside {self.database.path} cannot be written")
            self.state.learned, self.state.errors = True, dict(model.errors)
        self._tick()

    def _tick(self) -> MachineTuning:
        self.state.seconds = time.perf_counter() - self.started
        return self.state
