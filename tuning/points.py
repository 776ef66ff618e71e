"""Chooses the fastest point of each kernel's schedule space by measuring within the network."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from backends.tensorir.result import Kernel
from tuning.chosen import Chosen
from tuning.job import TuningJob
from tuning.known import Knowledge, KnownKernel
from tuning.limits import Limits
from tuning.machine_model import MachineModel
from tuning.measuring_session import MeasuringSession
from tuning.network import Network
from tuning.toolchain import Toolchain
from tuning.tuned_network import TunedNetwork


@dataclass(frozen=True)
class ChoosePoints:
    """Kernels at their default points -> the points at which they are fastest.

    Attributes:
        knowledge: The database; what it has is not measured again.
        toolchain: Compiles candidates.
        session: Runs them.
        folder: A folder for temporary files.
        seconds: The time for all of it.
        limits: The limits of the searches.
        goes_on: Whether to go on with kernels whose search had ended in an earlier job.
        machine: The learned cost model of this machine; None if there is none.
    """

    knowledge: Knowledge
    toolchain: Toolchain
    session: MeasuringSession
    folder: Path
    seconds: float
    limits: Limits
    goes_on: bool = False
    machine: MachineModel | None = None

    def __call__(self, kernels: Mapping[str, Kernel], network: Network, estimates: Mapping[str, float]) -> Chosen:
        """Return the points.

        Args:
            kernels: By name, scheduled at their default points.
            network: The calls that they make up.
            estimates: By name, the estimated time of all calls of the kernel together, in any unit.
        """
        started = time.perf_counter()
        job = TuningJob(
            knowledge=self.knowledge,
            toolchain=self.toolchain,
            session=self.session,
            folder=self.folder,
            limits=self.limits,
            machine=self.machine,
        )
        known = job.add("the model", kernels, network, estimates, goes_on=self.goes_on)
        before = recall(known)
        job.run(self.seconds)
        (tuned,) = job.networks
        now = {name: tuned.searches[name].known if name in tuned.searches else each for name, each in known.items()}
        said = _notes(tuned, job, time.perf_counter() - started)
        return replace(recall(now), notes=(*before.notes, *said))


def recall(known: Mapping[str, KnownKernel]) -> Chosen:
    """Return the points that earlier measurements choose for kernels, with their times."""
    points = {name: point for name, kernel in known.items() if (point := kernel.best()) is not None}
    seconds = {name: took for name, kernel in known.items() if (took := kernel.seconds()) is not None}
    many = sum(kernel.is_known for kernel in known.values())
    said = f"{many} kernels are as measured before, {len(points)} of them not at their default"
    return Chosen(points, seconds, (said,) if many else ())


def _notes(tuned: TunedNetwork, job: TuningJob, seconds: float) -> Iterator[str]:
    """Yield the notes on a job with one network."""
    rounds = job.log.of(tuned.name)
    for point in (point for each in job.log.rounds for point in each.points if point.failed):
        yield f"{point.kernel}: {point.tile} failed when it was measured"
    if tuned.failure or not rounds:
        if tuned.failure or any(each.points for each in job.log.rounds) or tuned.offers():
            yield f"no kernel was measured: {tuned.failure or f'{seconds:.1f} s were not enough'}"
        return
    before, after = rounds[-1].before, rounds[-1].after
    measured = f"measured {job.log.measured} points of {len(tuned.decisions)} kernels in {seconds:.1f} s"
    run = f"kernels of a run took {before * 1e3:.3f} ms before and {after * 1e3:.3f} after"
    if after >= before:
        yield f"{measured}, none of which made the model faster: the {run}"
        return
    yield f"{measured}: the {run}"
    for name, decision in tuned.decisions.items():
        best = tuned.best(name)
        if best is not None and decision.candidate:
            tiles = f"{tuned.bench.kernels[name].base.made.tile}, {decision.seconds * 1e6:.1f} by {best.made.tile}"
            yield f"{name}: {decision.default_s * 1e6:.1f} us by {tiles}"
