"""Tunes networks for as long as there is time and something to gain: their kernels are one set of searches."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.tensorir.result import Kernel
from fusion.cpu_load import QuietWait
from fusion.deadline import Deadline
from tuning.candidates import KernelCandidates
from tuning.job_log import JobLog
from tuning.kernel_search import KernelSearch
from tuning.known import Knowledge, KnownKernel
from tuning.limits import Limits
from tuning.machine_model import MachineModel
from tuning.measuring_session import ExperimentRunner
from tuning.network import Network
from tuning.network_bench import NetworkBench
from tuning.network_times import NetworkTimes
from tuning.toolchain import Toolchain
from tuning.tuned_network import TunedNetwork

_LEAST_SHARE = 0.002
"""Of a network's estimated time, of kernels that are worth it."""


@dataclass
class TuningJob:
    """Networks, and the searches for the kernels that they share or have alone.

    Attributes:
        knowledge: What was measured before, which is not measured again; what is measured is kept there.
        toolchain: Builds.
        session: Measures.
        folder: For files.
        limits: Of the searches.
        machine: What was learned of this machine, if anything.
        quiet: Waits for others to leave the machine alone; None where nobody does.
        check: Is called often, and may end the job by raising.
        on_round: Is called after each round.
        log: What was done.
    """

    knowledge: Knowledge
    toolchain: Toolchain
    session: ExperimentRunner
    folder: Path
    limits: Limits
    machine: MachineModel | None = None
    quiet: QuietWait | None = None
    check: Callable[[], None] = lambda: None
    on_round: Callable[[], None] = lambda: None
    log: JobLog = field(default_factory=JobLog)
    networks: list[TunedNetwork] = field(default_factory=list)
    _searches: dict[str, KernelSearch] = field(default_factory=dict, init=False)

    def add(
        self,
        name: str,
        kernels: Mapping[str, Kernel],
        network: Network,
        estimates: Mapping[str, float],
        *,
        goes_on: bool,
    ) -> dict[str, KnownKernel]:
        """Add a network; returns what is known of its kernels.

        Args:
            name: For people.
            kernels: By name, at their default point.
            network: What they make up.
            estimates: Of all calls of each kernel together, in any unit.
            goes_on: Whether kernels that were measured whole before are measured on.
        """
        known = self.knowledge.kernels({name: kernel.source for name, kernel in kernels.items()})
        total = sum(estimates.values())
        shares = {name: estimates.get(name, 0.0) / total if total else 0.0 for name in kernels}
        order = sorted(kernels, key=lambda each: -shares[each])
        wanted = [each for each in order if each in known and shares[each] >= _LEAST_SHARE]
        searches = {each: self._search(known[each]) for each in wanted if goes_on or not known[each].is_known}
        schedule = self.knowledge.compiler.schedule
        candidates = dict[str, KernelCandidates]()
        for place, each in enumerate(order):
            best = known[each].best() if each in known and each not in searches else None
            candidates[each] = (
                KernelCandidates.of(kernels[each], f"k{place}")
                if best is None
                else KernelCandidates.running_at(best, kernels[each], f"k{place}", schedule)
            )
        bench = NetworkBench(
            kernels=candidates,
            network=network,
            toolchain=self.toolchain,
            session=self.session,
            folder=self.folder / f"network{len(self.networks)}",
            threads=self.knowledge.compiler.threads,
        )
        tuned = TunedNetwork(
            name=name, bench=bench, searches=searches, shares=shares, schedule=schedule, limits=self.limits
        )
        self.networks.append(tuned)
        return known

    def run(self, seconds: float) -> None:
        """Measure until no network is expected to gain, or the time is over; what was measured is kept after each
        round."""
        until = Deadline.after(seconds)
        while some := [network for network in self.networks if network.offers()]:
            made, records = max(some, key=TunedNetwork.expected_gain).round(until, self.check, self.quiet)
            self.knowledge.keep(records)
            self.log.rounds.append(made)
            self.on_round()
            if until.left <= 0:
                return

    def verify(self, network: TunedNetwork, seconds: float) -> NetworkTimes | None:
        """Return what a network takes at the defaults and with the best points: as it was measured before, or now, if
        there are `seconds` for it; None where neither is so. What is measured beside others is not kept."""
        task = network.task(self.knowledge.environment)
        known = () if task is None else self.knowledge.records([task])
        if known:
            return NetworkTimes.of_record(known[0])
        is_busy = seconds > 0 and self.quiet is not None and self.quiet.wait()
        found = network.compare(seconds) if seconds > 0 else None
        if found is not None and task is not None and not is_busy:
            self.knowledge.keep([found.record(task, time.time())])
        return found

    def _search(self, known: KnownKernel) -> KernelSearch:
        """Return the search for a kernel, the one that another network has of the same."""
        key = known.task.key
        if key not in self._searches:
            self._searches[key] = KernelSearch.of(known, self.machine)
        return self._searches[key]
