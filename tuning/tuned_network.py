"""A network whose kernels are tuned in it: rounds of points that searches offer, built, measured and recorded."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite

from backends.tensorir.space import Point
from fusion.system.cpu_load import BUSY, QuietWait, watch
from fusion.system.deadline import Deadline
from tuning.budget import Allotment, allot, expected_gain
from tuning.candidates import Candidate
from tuning.canonical import canonical
from tuning.decide import Decision
from tuning.experiment import Experiment
from tuning.job_log import JobRound, KernelTimes, MeasuredPoint, RoundTimes
from tuning.kernel_search import KernelSearch
from tuning.limits import Limits
from tuning.measuring_session import Results
from tuning.network_bench import NetworkBench
from tuning.network_times import NetworkTimes
from tuning.record import Record
from tuning.search import Offer, key_of
from tuning.structure import structure_of
from tuning.study import StudiedKernel
from tuning.task import NETWORK, Environment, TuningTask

PER_ROUND = 4
"""Points of a kernel in a round: what they take has to be known before the next are chosen."""
_EMITTING, _BUILDING = 0.25, 0.6
"""Shares of the time that is left for candidates by when loops are written, and code is made of them."""


@dataclass(frozen=True)
class _Asked:
    """A point of a kernel that is to be measured in this round."""

    kernel: str
    offer: Offer
    candidate: Candidate


@dataclass
class _Built:
    """What has code of what is to be measured.

    Attributes:
        asked: By kernel.
        is_late: Whether time was over before all of it was built.
        writing_s: Seconds in which loops were written, while code was made of the first of them.
    """

    asked: dict[str, list[_Asked]] = field(default_factory=dict)
    is_late: bool = False
    writing_s: float = 0.0


@dataclass(frozen=True)
class PreparedRound:
    """Points that are to be measured together, and have code.

    Attributes:
        made: The points.
        candidates: What is measured of each kernel.
        experiment: That does so; None where there is nothing to measure.
        choosing_s, building_s: Seconds that went into it.
        others: CPUs that other processes used meanwhile.
    """

    made: _Built
    candidates: Mapping[str, Sequence[Candidate]]
    experiment: Experiment | None
    choosing_s: float
    building_s: float
    others: float


@dataclass
class TunedNetwork:
    """A network with the searches for its kernels, which other networks may share.

    Attributes:
        name: For people.
        bench: Measures.
        searches: By kernel; of those that are to be measured.
        shares: Of each kernel, of the network's time.
        limits: Of the searches.
        decisions: What was measured last of each kernel of several candidates.
        failure: Why nothing of it is measured any more.
    """

    name: str
    bench: NetworkBench
    searches: Mapping[str, KernelSearch]
    shares: dict[str, float]
    limits: Limits
    decisions: dict[str, Decision] = field(default_factory=dict)
    failure: str = ""
    _is_built: bool = field(default=False, init=False)

    def offers(self) -> Mapping[str, Sequence[Offer]]:
        """Return what is worth measuring next of each kernel."""
        if self.failure:
            return {}
        found = {name: self._offers_of(search) for name, search in self.searches.items()}
        return {name: some for name, some in found.items() if some}

    def expected_gain(self) -> float:
        """Return by which share it is expected to get faster in a round."""
        return expected_gain(self.offers(), self.shares)

    def prepare(self, until: Deadline, check: Callable[[], None]) -> PreparedRound:
        """Build the points that are worth most, which are offered no more until `finish`.

        Args:
            until: When the job ends.
            check: Is called often, and may end it by raising.
        """
        began = time.perf_counter()
        allotted = allot(self.offers(), self.shares, self.limits.together)
        bests = self._bests()
        chosen = time.perf_counter()
        with watch() as load:
            made = self._build(allotted, bests, until, check)
        check()
        for name, some in made.asked.items():
            self.searches[name].begin(each.offer.point for each in some)
        choosing = chosen - began + made.writing_s
        candidates = self._candidates(made.asked, bests)
        experiment = self.bench.experiment(candidates) if made.asked else None
        building = time.perf_counter() - began - choosing
        return PreparedRound(
            made=made, candidates=candidates, experiment=experiment, choosing_s=choosing, building_s=building,
            others=load.others,
        )  # fmt: skip

    def measure(self, prepared: PreparedRound, until: Deadline) -> Results:
        """Return what the points of a round take, measured until a point in time."""
        if prepared.experiment is None or self.failure:
            return Results()
        return self.bench.session.run(replace(prepared.experiment, seconds=max(0.0, until.left)))

    def finish(self, prepared: PreparedRound, results: Results) -> list[Record]:
        """Tell the searches what was measured; returns the records."""
        records = self._learn(prepared.candidates, results, prepared.made.is_late) if prepared.made.asked else []
        for name, some in prepared.made.asked.items():
            self.searches[name].end(each.offer.point for each in some)
        return records

    def leave_out(self, prepared: PreparedRound) -> None:
        """Offer the points of a round no more."""
        for name, some in prepared.made.asked.items():
            self.searches[name].leave_out(each.offer.point for each in some)

    def round(
        self, until: Deadline, check: Callable[[], None], quiet: QuietWait | None
    ) -> tuple[JobRound, list[Record]]:
        """Build and measure the points that are worth most, and tell the searches; return what came of it.

        Args:
            until: When the job ends.
            check: Is called often, and may end it by raising.
            quiet: Waits, before something is measured, where others were using the machine while code was made.
        """
        prepared = self.prepare(until, check)
        started = time.perf_counter()
        is_busy = quiet is not None and prepared.experiment is not None and prepared.others >= BUSY and quiet.wait()
        waited = time.perf_counter()
        results = self.measure(prepared, until)
        records = self.finish(prepared, results)
        measuring = time.perf_counter() - waited
        done = self.told(prepared, results, records, measuring=measuring, waiting=waited - started, is_busy=is_busy)
        return done, records

    def told(
        self, prepared: PreparedRound, results: Results, records: Sequence[Record], *, measuring: float,
        waiting: float = 0.0, is_busy: bool = False,
    ) -> JobRound:  # fmt: skip
        """Return what a round was, which has ended now: what came of its points, and the seconds that it took."""
        return JobRound(
            network=self.name,
            before=results.before if isfinite(results.before) else 0.0,
            after=results.after if isfinite(results.after) else 0.0,
            points=tuple(self._points(prepared.made.asked, records)),
            kernels={
                name: KernelTimes(each.seconds, each.default_s)
                for (name, some), each in zip(prepared.candidates.items(), results.decisions, strict=False)
                if len(some) > 1 and each.times
            },
            times=RoundTimes(
                choosing=prepared.choosing_s, building=prepared.building_s, waiting=waiting, measuring=measuring
            ),
            ended=time.perf_counter(),
            is_busy=is_busy,
        )

    def task(self, environment: Environment) -> TuningTask | None:
        """Return the question what the network takes with the best points of its kernels; None where nobody can say
        what it is."""
        points = {name: search.best() for name, search in self.searches.items()}
        try:
            sums = {name: structure_of(each.kernel.source) for name, each in self.bench.kernels.items()}
        except Exception:  # of what has no text, TVM raises whatever it does
            return None
        chosen = {sums[name]: dict(point.axes()) for name, point in points.items() if point is not None}
        calls = [sums[call.kernel] for call in self.bench.network.plan.calls]
        structure = hashlib.sha256(canonical({"calls": calls, "points": chosen}).encode()).hexdigest()
        tensors = tuple((str(array.dtype), array.shape) for array in self.bench.network.inputs)
        return TuningTask(NETWORK, NETWORK, structure, tensors, environment)

    def compare(self, seconds: float) -> NetworkTimes | None:
        """Return what a run takes at the defaults and with the best points, in turns; None where that fails."""
        bests = self._bests()
        bases = {name: kernel.base for name, kernel in self.bench.kernels.items()}
        wanted = [*bases.values(), *bests.values()]
        until = Deadline.after(seconds)
        built = set() if self.failure else self.bench.build(wanted, lambda: until.left < 0)
        if not built or len(built) < len({each.symbol for each in wanted}):
            return None
        candidates = {name: (base, bests.get(name, base)) for name, base in bases.items()}
        results = self.bench.compare(candidates, seconds)
        return NetworkTimes.of_decision(results.decisions[0]) if results.decisions else None

    def studied(self) -> Iterator[StudiedKernel]:
        """Yield what is known of the kernels that were to be searched."""
        for name, search in self.searches.items():
            yield StudiedKernel(name, self.shares.get(name, 0.0), self.bench.kernels[name].base.made.tile, search)

    def _bests(self) -> dict[str, Candidate]:
        """Return the fastest candidates of kernels that have another than the default."""
        found = {name: self.best(name) for name in self.searches}
        return {name: candidate for name, candidate in found.items() if candidate is not None}

    def _offers_of(self, search: KernelSearch) -> Sequence[Offer]:
        left = min(PER_ROUND, self.limits.points - search.tried)
        return search.offers(left) if left > 0 else ()

    def _ask(self, allotted: Allotment, until: Deadline, check: Callable[[], None]) -> Iterator[_Asked]:
        """Yield what was allotted as its loops are written, of kernels with most time first; what has none is offered
        no more."""
        for name in sorted(allotted, key=lambda name: -self.shares.get(name, 0.0)):
            for offer in allotted[name] if until.left > 0 else ():
                candidate = self._at(name, offer.point)
                check()
                if candidate is None:
                    self.searches[name].leave_out([offer.point])
                else:
                    yield _Asked(name, offer, candidate)

    def best(self, name: str) -> Candidate | None:
        """Return the fastest candidate of a kernel that is to be measured; None where that is the default."""
        point = self.searches[name].best()
        return None if point is None else self._at(name, point)

    def _at(self, name: str, point: Point) -> Candidate | None:
        return self.bench.kernels[name].at(point, self.searches[name].known.choices.emit)

    def _build(
        self, allotted: Allotment, bests: dict[str, Candidate], until: Deadline, check: Callable[[], None]
    ) -> _Built:
        """Build `bests` and what was allotted; what has no code leaves `bests`, and is not in what is returned.

        Args:
            until: When the job ends: code of candidates is made for a part of the time up to then.
        """
        made = _Built()
        if not allotted:
            return made
        self._is_built = self._is_built or self.bench.build_bases(lambda: until.left < 0)
        if not self._is_built:
            made.is_late = until.left < 0
            self.failure = "" if made.is_late else "the candidates cannot be built"
            return made
        began, left = time.perf_counter(), until.left
        written, ends = Deadline.after(_EMITTING * left), Deadline.after(_BUILDING * left)

        def candidates() -> Iterator[Candidate]:
            yield from bests.values()
            for each in self._ask(allotted, written, check):
                made.asked.setdefault(each.kernel, []).append(each)
                yield each.candidate
            made.writing_s = time.perf_counter() - began

        def over() -> bool:
            made.is_late = made.is_late or ends.left < 0
            return made.is_late

        built = self.bench.build(candidates(), over)
        for name in [name for name, candidate in bests.items() if candidate.symbol not in built]:
            del bests[name]
        for name, some in list(made.asked.items()):
            made.asked[name] = [each for each in some if each.candidate.symbol in built]
            if not made.is_late:  # what is not there cannot be built, now or later
                missing = [each.offer.point for each in some if each.candidate.symbol not in built]
                self.searches[name].leave_out(missing)
            if not made.asked[name]:
                del made.asked[name]
        return made

    def _candidates(
        self, asked: Mapping[str, Sequence[_Asked]], bests: Mapping[str, Candidate]
    ) -> dict[str, list[Candidate]]:
        """Return what is measured of each kernel of the network."""
        found = {}
        for name, kernel in self.bench.kernels.items():
            others = [each.candidate for each in asked.get(name, ())]
            best = [bests[name]] if name in bests and bests[name] not in others else []
            found[name] = [kernel.base, *best, *others]
        return found

    def _learn(self, candidates: Mapping[str, Sequence[Candidate]], results: Results, late: bool) -> list[Record]:
        """Tell the searches what was measured; returns the records."""
        if results.failure and not results.crashed:
            self.failure = results.failure
        now, names = time.time(), list(candidates)
        records = list[Record]()
        for trial in results.crashed:
            name = names[trial.kernel]
            records += self._learn_failure(name, candidates[name][trial.candidate], now)
        if results.decisions and all(isfinite(each.default_s) for each in results.decisions):
            total = sum(each.default_s for each in results.decisions)
            self.shares = {name: each.default_s / total for name, each in zip(names, results.decisions, strict=True)}
        is_faster = results.after < results.before
        for (name, some), decision in zip(candidates.items(), results.decisions, strict=False):
            if len(some) > 1:
                records += self._learn_times(name, some, decision, _Session(now, is_faster, late))
        return records

    def _learn_failure(self, name: str, candidate: Candidate, now: float) -> list[Record]:
        search, point = self.searches[name], candidate.point
        if point is None:
            return []
        records = [Record.of_failure(search.known.task, point.axes(), now)]
        search.keep(records)
        return records

    def _learn_times(
        self, name: str, some: Sequence[Candidate], decision: Decision, session: _Session
    ) -> list[Record]:
        search = self.searches[name]
        if not decision.times:  # a run does not come to it
            search.leave_out([each.point for each in some if each.point is not None])
            return []
        self.decisions[name] = decision
        best = search.best_record()
        records = []
        for found in decision.times:
            point = some[found.candidate].point
            before = best if best is not None and point is not None and best.point == point.axes() else None
            # A network that is not faster says nothing against what was the best before.
            if point is not None and (session.is_faster or before is None):
                record = found.record(search.known.task, point.axes(), wins=False, measured_at=session.now)
                wins = found.candidate == decision.candidate or (not decision.candidate and _outlasts(record, before))
                records.append(replace(record, wins=session.is_faster and wins))
        search.keep(records)
        if session.is_late or self._offers_of(search):
            return records
        # By the record of the default a kernel is known: it is kept with the last.
        default = search.known.choices.space.default
        last = decision.times[0].record(search.known.task, default.axes(), wins=False, measured_at=session.now)
        search.keep([last])
        return [*records, last]

    def _points(self, asked: Mapping[str, Sequence[_Asked]], records: Sequence[Record]) -> Iterator[MeasuredPoint]:
        made = {(record.task.key, canonical(record.point)): record for record in records}
        for name, some in asked.items():
            task = self.searches[name].known.task
            for each in some:
                record = made.get((task.key, key_of(each.offer.point)))
                if record is not None:
                    yield MeasuredPoint(name, each.candidate.made.tile, record.failed)


def _outlasts(record: Record, before: Record | None) -> bool:
    """Return whether a point that was the best `before` stays so where none won: if it is faster than the default by
    both of its last measurements together. It is measured in each round, and offered no more: if it had to win each by
    more than noise, it would be lost sooner or later."""
    return before is not None and record.ratio * before.ratio < 1


@dataclass(frozen=True)
class _Session:
    """What a round was like.

    Attributes:
        now: When it ended, as `time.time` tells it.
        is_faster: Whether the network is, with what won.
        is_late: Whether there was no time to build some candidates.
    """

    now: float
    is_faster: bool
    is_late: bool
