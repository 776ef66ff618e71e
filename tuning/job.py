"""Tunes one or more networks together, for as long as there is time and something to gain. Kernels that they share are
searched once."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from backends.tensorir.result import Kernel
from fusion.system.cpu_load import QuietWait
from fusion.system.deadline import Deadline
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
"""The share of a network's estimated time above which a kernel is worth tuning."""


@dataclass
class TuningJob:
    """Networks, and one search for each of their distinct kernels.

    Attributes:
        knowledge: The database: what it has is not measured again, and what is measured is added.
        toolchain: Compiles candidates.
        session: Runs them.
        folder: A folder for temporary files.
        limits: The limits of the searches.
        machine: The learned cost model of this machine; None if there is none.
        quiet: Waits until other processes leave the machine idle; None to measure at once.
        check: Called often; may end the job by raising.
        on_round: Called after each round.
        log: What was done.
        networks: The networks, in the order in which they were added.
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
        """Add a network; return what is known of its kernels.

        Args:
            name: Its name in reports.
            kernels: By name, scheduled at their default points.
            network: The calls that they make up.
            estimates: By name, the estimated time of all calls of the kernel together, in any unit.
            goes_on: Whether to go on with kernels whose search had ended in an earlier job.
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
        tuned = TunedNetwork(name=name, bench=bench, searches=searches, shares=shares, limits=self.limits)
        self.networks.append(tuned)
        return known

    def run(self, seconds: float) -> None:
        """Measure in rounds, each for the network that is expected to gain most, until none is expected to gain or the
        time is over. Each round's results are kept at its end."""
        until = Deadline.after(seconds)
        while some := [network for network in self.networks if network.offers()]:
            made, records = max(some, key=TunedNetwork.expected_gain).round(until, self.check, self.quiet)
            self.knowledge.keep(records)
            self.log.rounds.append(made)
            self.on_round()
            if until.left <= 0:
                return

    def verify(self, network: TunedNetwork, seconds: float) -> NetworkTimes | None:
        """Return the times of a network at the default points and at the best ones: those of an earlier job, or
        measured now if there are `seconds` for it; None otherwise. What is measured on a busy machine is not kept."""
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
        """Return the search for a kernel, which all networks with that kernel share."""
        key = known.task.key
        if key not in self._searches:
            self._searches[key] = KernelSearch.of(known, self.machine)
        return self._searches[key]
