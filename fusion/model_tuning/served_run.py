"""The run of a tuning job on servers: points are built here, and measured there, by each kind of CPU for itself."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from fusion.api import compiling
from fusion.errors import DeviceLostError
from fusion.measuring import SEARCHED, Measuring
from fusion.model_tuning.job_models import JobModels
from fusion.model_tuning.networks import GivenModel
from fusion.model_tuning.run import verifying_s
from fusion.model_tuning.servers import ServerKind, names_of
from fusion.model_tuning.tuning import Tuning
from fusion.module.kernel_library import KernelLibrary
from fusion.system.abandon import taking_precedence
from fusion.system.collector import seldom
from fusion.system.interrupts import keeping_interrupts
from tuning.database import RecordStore
from tuning.job import TuningJob
from tuning.job_log import JobLog
from tuning.known import Knowledge
from tuning.served.job import ServedJob, run_served
from tuning.served.pool import ServerPool
from tuning.study import TuningStudy


@dataclass(frozen=True)
class _KindOfJob:
    """What the servers of one kind do."""

    kind: ServerKind
    served: ServedJob
    models: JobModels


@dataclass
class ServedRun:
    """Tunes models on servers.

    Attributes:
        kinds: Of the servers.
        given: The models.
        store: What was measured before, of whatever CPU, and what is measured now.
        folder: For files.
        state: What was done; of each kind and each model, in this order.
        on_progress: Is called with it.
    """

    kinds: Sequence[ServerKind]
    given: Sequence[GivenModel]
    store: RecordStore
    folder: Path
    state: Tuning
    on_progress: Callable[[Tuning], None]
    _started: float = field(default_factory=time.perf_counter, init=False)
    _log: JobLog = field(default_factory=JobLog, init=False)
    _lowering_s: float = field(default=0.0, init=False)
    _verifying_s: float = field(default=0.0, init=False)

    def run(self) -> None:
        """Do it, until time is over, nothing is expected to gain, or the user ends it.

        Raises:
            DeviceLostError: All servers were lost; what they measured is kept.
        """
        try:
            with keeping_interrupts() as check, taking_precedence(), compiling, seldom(), self._jobs(check) as jobs:
                try:
                    self._measure(jobs, check)
                finally:
                    self._end(jobs)
        except KeyboardInterrupt:
            self.state.interrupted = True
        self._tick()

    @contextmanager
    def _jobs(self, check: Callable[[], None]) -> Iterator[list[_KindOfJob]]:
        with ExitStack() as stack:
            jobs = list[_KindOfJob]()
            for number, (kind, name) in enumerate(zip(self.kinds, names_of(self.kinds), strict=True)):
                pool = ServerPool(kind.sessions, kind.is_alike)
                stack.callback(pool.close)
                folder = self.folder / f"kind{number}"
                folder.mkdir()
                job = TuningJob(
                    knowledge=Knowledge.of(self.store, kind.ctx.compiler, kind.facts.model),
                    toolchain=KernelLibrary(kind.ctx.compiler),
                    session=pool,
                    folder=folder,
                    limits=SEARCHED,
                    check=check,
                    log=self._log,
                )
                jobs.append(_KindOfJob(kind, ServedJob(job, pool), JobModels(kind.ctx, job, name)))
            for each in jobs:
                each.served.job.on_round = lambda: self._tell(jobs)
            yield jobs

    def _measure(self, jobs: Sequence[_KindOfJob], check: Callable[[], None]) -> None:
        for number, each in enumerate(jobs):
            mine = self.state.models[number * len(self.given) : (number + 1) * len(self.given)]
            knowledge = each.served.job.knowledge
            with each.kind.ctx.target:
                each.models.add_all(self.given, mine, Measuring(each.kind.ctx, knowledge), check)
        self._lowering_s = time.perf_counter() - self._started
        verifying = verifying_s(self.state.budget_s, sum(len(each.served.job.networks) for each in jobs))
        self._tell(jobs)
        left = self.state.budget_s - verifying - self._lowering_s
        if left > 0:
            run_served([each.served for each in jobs], left, check)
        if all(each.served.lost for each in jobs):
            raise self._lost(jobs)
        started = time.perf_counter()
        for each in jobs:
            with each.kind.ctx.target:
                each.models.verify(verifying / len(jobs), check)
        self._verifying_s = time.perf_counter() - started

    def _lost(self, jobs: Sequence[_KindOfJob]) -> DeviceLostError:
        return DeviceLostError(
            "no server of TVM RPC is left to measure on",
            why="; ".join(dict.fromkeys(each.served.lost for each in jobs)),
            hint=f"the {self.state.points} points that were measured are kept: start servers, and call it again, which "
            "goes on there",
        )

    def _tell(self, jobs: Sequence[_KindOfJob]) -> None:
        for each in jobs:
            each.models.note()
        self.state.rounds = sum(bool(made.points) for made in self._log.rounds)
        self._note_losses(jobs)
        self.on_progress(self._tick())

    def _end(self, jobs: Sequence[_KindOfJob]) -> None:
        self._note_losses(jobs)
        kernels = {name: some for each in jobs for name, some in each.models.studied().items()}
        self.state.study = TuningStudy(self._log, kernels, self._lowering_s, self._verifying_s)

    def _note_losses(self, jobs: Sequence[_KindOfJob]) -> None:
        self.state.lost = [why for each in jobs for why in each.served.pool.lost]

    def _tick(self) -> Tuning:
        self.state.seconds = time.perf_counter() - self._started
        return self.state
