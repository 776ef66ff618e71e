"""The run of a tuning job: its models are lowered, their kernels tuned together, and each is run before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusion.api import compiling
from fusion.context import Context
from fusion.measuring import SEARCHED, Measuring, measuring
from fusion.model_tuning.job_models import JobModels
from fusion.model_tuning.networks import GivenModel
from fusion.model_tuning.tuning import Tuning
from fusion.system.abandon import taking_precedence
from fusion.system.collector import seldom
from fusion.system.cpu_load import QuietWait
from fusion.system.interrupts import keeping_interrupts
from tuning.job import TuningJob
from tuning.study import TuningStudy

_WAITING = 0.1
"""Share of the budget that may pass in waiting for others to end what they do."""
_VERIFYING, _VERIFYING_S = 0.1, 6.0
"""Share of the budget for running models at the defaults and at the best points, and seconds for each at most."""


@dataclass
class TuningRun:
    """Tunes models.

    Attributes:
        given: The models.
        state: What was done; of each model, in the same order.
        on_progress: Is called with it.
    """

    ctx: Context
    given: Sequence[GivenModel]
    state: Tuning
    on_progress: Callable[[Tuning], None]
    _started: float = field(default_factory=time.perf_counter, init=False)
    _lowering_s: float = field(default=0.0, init=False)
    _verifying_s: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Do it, until time is over, nothing is expected to gain, or the user ends it."""
        try:
            with keeping_interrupts() as check, self._prepared() as measured:
                job = self._job(measured, check)
                models = JobModels(self.ctx, job)
                job.on_round = lambda: self._tell(models)
                try:
                    self._measure(models, measured, check)
                finally:
                    self._end(models)
        except KeyboardInterrupt:
            self.state.interrupted = True
        self._tick()

    @contextmanager
    def _prepared(self) -> Iterator[Measuring]:
        with taking_precedence(), compiling, seldom(), self.ctx.target, measuring(self.ctx) as measured:
            yield measured

    def _job(self, measured: Measuring, check: Callable[[], None]) -> TuningJob:
        assert measured.bench is not None
        assert measured.knowledge is not None
        return TuningJob(
            knowledge=measured.knowledge,
            toolchain=measured.bench.toolchain,
            session=measured.bench.session,
            folder=measured.bench.folder,
            limits=SEARCHED,
            machine=self.ctx.model,
            quiet=QuietWait(_WAITING * self.state.budget_s, check),
            check=check,
        )

    def _measure(self, models: JobModels, measured: Measuring, check: Callable[[], None]) -> None:
        job = models.job
        models.add_all(self.given, self.state.models, measured, check)
        self._lowering_s = time.perf_counter() - self._started
        verifying = verifying_s(self.state.budget_s, len(job.networks))
        job.on_round()
        left = self.state.budget_s - verifying - self._lowering_s
        if left > 0:
            job.run(left)
        started = time.perf_counter()
        models.verify(verifying, check)
        self._verifying_s = time.perf_counter() - started

    def _tell(self, models: JobModels) -> None:
        """Bring the state up to date, and tell the caller."""
        job = models.job
        models.note()
        rounds = [made for made in job.log.rounds if made.points]
        self.state.rounds = len(rounds)
        self.state.busy = sum(made.is_busy for made in rounds)
        self.state.waited_s = 0.0 if job.quiet is None else job.quiet.waited_s
        self.on_progress(self._tick())

    def _end(self, models: JobModels) -> None:
        """Keep what is known; the networks, and their weights, are not needed any more."""
        self.state.study = TuningStudy(models.job.log, models.studied(), self._lowering_s, self._verifying_s)

    def _tick(self) -> Tuning:
        self.state.seconds = time.perf_counter() - self._started
        return self.state


def verifying_s(budget_s: float, networks: int) -> float:
    """Return the seconds of a budget for running so many models at the defaults and at the best points."""
    return min(_VERIFYING * budget_s, _VERIFYING_S * networks)
