"""The run of a tuning job: its models are lowered, their kernels tuned together, and each is run before and after."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from fusion.abandon import taking_precedence
from fusion.api import compiling
from fusion.collector import seldom
from fusion.context import Context
from fusion.cpu_load import QuietWait
from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.failures import report
from fusion.interrupts import keeping_interrupts
from fusion.measuring import SEARCHED, Measuring, measuring
from fusion.model_tuning.networks import GivenModel, network_of
from fusion.model_tuning.tuning import TunedModel, Tuning
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
    _tuned: dict[str, TunedModel] = field(default_factory=dict, init=False)
    _lowering_s: float = field(default=0.0, init=False)
    _verifying_s: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Do it, until time is over, nothing is expected to gain, or the user ends it."""
        try:
            with keeping_interrupts() as check, self._prepared() as measured:
                job = self._job(measured, check)
                try:
                    self._measure(job, measured, check)
                finally:
                    self._end(job)
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
        job = TuningJob(
            knowledge=measured.knowledge,
            toolchain=measured.bench.toolchain,
            session=measured.bench.session,
            folder=measured.bench.folder,
            limits=SEARCHED,
            machine=self.ctx.model,
            quiet=QuietWait(_WAITING * self.state.budget_s, check),
            check=check,
        )

        def tell() -> None:
            self._note(job)
            self.on_progress(self._tick())

        job.on_round = tell
        return job

    def _measure(self, job: TuningJob, measured: Measuring, check: Callable[[], None]) -> None:
        for given, model in zip(self.given, self.state.models, strict=True):
            self._add(given, model, job, measured)
            check()
        self._lowering_s = time.perf_counter() - self._started
        verifying = min(_VERIFYING * self.state.budget_s, _VERIFYING_S * len(job.networks))
        job.on_round()
        left = self.state.budget_s - verifying - self._lowering_s
        if left > 0:
            job.run(left)
        started = time.perf_counter()
        for network in job.networks:
            check()
            model = self._tuned[network.name]
            model.times = job.verify(network, verifying / len(job.networks)) or model.times
        self._verifying_s = time.perf_counter() - started

    def _add(self, given: GivenModel, model: TunedModel, job: TuningJob, measured: Measuring) -> None:
        """Add a model to the job."""
        try:
            network = network_of(given, self.ctx, measured)
        except (FusionError, MemoryError):
            raise
        except Declined as declined:
            model.note = f"it is not tuned: {declined}"
            return
        except Exception as error:  # a defect, for which `compile` has other forms, whose kernels are not these
            model.note = report("it is not tuned, as its kernels cannot be told", error)
            return
        job.add(given.name, network.kernels, network.network, network.cycles, goes_on=True)
        self._tuned[given.name] = model

    def _note(self, job: TuningJob) -> None:
        """Bring the state up to date."""
        rounds = [made for made in job.log.rounds if made.points]
        self.state.rounds = len(rounds)
        self.state.busy = sum(made.is_busy for made in rounds)
        self.state.waited_s = 0.0 if job.quiet is None else job.quiet.waited_s
        for network in job.networks:
            model = self._tuned[network.name]
            model.kernels = len(network.searches)
            model.points = job.log.points_of(network.name)
            model.expected = network.expected_gain()
            model.times = job.log.times_of(network.name) or model.times
            model.note = network.failure

    def _end(self, job: TuningJob) -> None:
        """Keep what is known; the networks, and their weights, are not needed any more."""
        kernels = {network.name: tuple(network.studied()) for network in job.networks}
        self.state.study = TuningStudy(job.log, kernels, self._lowering_s, self._verifying_s)

    def _tick(self) -> Tuning:
        self.state.seconds = time.perf_counter() - self._started
        return self.state
