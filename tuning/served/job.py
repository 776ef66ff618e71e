"""Tunes networks on servers: points are built here while servers measure others."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field

from fusion.system.deadline import Deadline
from tuning.job import TuningJob
from tuning.measuring_session import Results
from tuning.served.pool import ServerPool
from tuning.tuned_network import PreparedRound, TunedNetwork

_LOOK_S = 0.2
"""How often a user is asked whether to go on."""
_AHEAD = 1
"""Rounds that are ready beside those that are being measured."""


@dataclass(frozen=True)
class _UnderWay:
    network: TunedNetwork
    prepared: PreparedRound


@dataclass(frozen=True)
class _Measured:
    results: Results
    seconds: float


@dataclass
class ServedJob:
    """A job that servers of one kind measure.

    Attributes:
        job: Its networks, whose points run on `pool`.
        lost: Why nothing of it is measured any more; "" while servers are there.
    """

    job: TuningJob
    pool: ServerPool
    lost: str = ""
    _under_way: dict[Future[_Measured], _UnderWay] = field(default_factory=dict, init=False)

    @property
    def futures(self) -> Sequence[Future[_Measured]]:
        """What is being measured, or is to be."""
        return list(self._under_way)

    def has_room(self) -> bool:
        """Whether points that are built now are measured soon, and there are some."""
        room = len(self._under_way) < self.pool.alive + _AHEAD
        return not self.lost and room and bool(self._offering())

    def prepare(self, until: Deadline, threads: ThreadPoolExecutor) -> None:
        """Build the points that are worth most, and have them measured."""
        network = max(self._offering(), key=TunedNetwork.expected_gain)
        prepared = network.prepare(until, self.job.check)
        future = threads.submit(_measure, network, prepared, until)
        self._under_way[future] = _UnderWay(network, prepared)

    def collect(self) -> None:
        """Learn from what was measured, and keep it."""
        for future in [future for future in self._under_way if future.done()]:
            self._learn(self._under_way.pop(future), future.result())

    def _offering(self) -> list[TunedNetwork]:
        return [network for network in self.job.networks if network.offers()]

    def _learn(self, each: _UnderWay, measured: _Measured) -> None:
        results = measured.results
        if results.lost and self.pool.alive:  # it took several servers with it
            each.network.leave_out(each.prepared)
        elif results.lost:
            self.lost = results.lost
        records = each.network.finish(each.prepared, results)
        self.job.knowledge.keep(records)
        self.job.log.rounds.append(each.network.told(each.prepared, results, records, measuring=measured.seconds))
        self.job.on_round()


def run_served(jobs: Sequence[ServedJob], seconds: float, check: Callable[[], None]) -> None:
    """Measure until no network of any job is expected to gain, the time is over, or all servers are lost."""
    until = Deadline.after(seconds)
    with ThreadPoolExecutor(sum(job.pool.alive + _AHEAD for job in jobs), "fusion measures") as threads:
        try:
            while True:
                check()
                for job in jobs:
                    job.collect()
                open_jobs = [job for job in jobs if job.has_room()] if until.left > 0 else []
                if open_jobs:
                    min(open_jobs, key=lambda job: len(job.futures)).prepare(until, threads)
                elif futures := [future for job in jobs for future in job.futures]:
                    wait(futures, _LOOK_S, FIRST_COMPLETED)
                else:
                    return
        except BaseException:
            for job in jobs:
                job.pool.close()
            raise


def _measure(network: TunedNetwork, prepared: PreparedRound, until: Deadline) -> _Measured:
    started = time.perf_counter()
    results = network.measure(prepared, until)
    return _Measured(results, time.perf_counter() - started)
