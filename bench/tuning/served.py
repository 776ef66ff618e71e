"""What servers of TVM RPC measure in a second: one of them, and two, each on a CPU of its own, in turns."""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import fusion
from bench.devices.rpc_servers import KEY, RpcServerProcess
from bench.devices.tracker import TrackerThread
from bench.markdown import table
from bench.zoo import make
from fusion.measuring import Measuring
from fusion.model_tuning.job_models import JobModels
from fusion.model_tuning.networks import read_models
from fusion.model_tuning.servers import ServerKind, join_servers, kinds_of
from fusion.model_tuning.tuning import TunedModel
from fusion.module.kernel_library import KernelLibrary
from fusion.system.cpus import cpu_numbers
from fusion.system.deadline import Deadline
from tuning.job import TuningJob
from tuning.known import Knowledge
from tuning.limits import Limits
from tuning.served.pool import ServerPool
from tuning.served.tracker import Tracker
from tuning.tuned_network import PreparedRound, TunedNetwork

_MODEL = "squeezenet"
_ROUNDS, _TOGETHER = 4, 16
"""Rounds of points that are built before anything is measured, and points of each."""
_TURNS = 3
_ROUND_S = 60.0
_SERVERS = 2


@dataclass(frozen=True)
class Rate:
    """Candidates that so many servers measured in a second, built before, in each turn."""

    servers: int
    rates: tuple[float, ...]

    @property
    def middle(self) -> float:
        """The median."""
        return median(self.rates)


@contextmanager
def board() -> Iterator[Tracker]:
    """A tracker and servers, each bound to a CPU."""
    cpus = cpu_numbers()
    with TrackerThread() as tracker:
        made = [
            RpcServerProcess(tracker=tracker.port, before=("taskset", "-c", str(cpus[place % len(cpus)])))
            for place in range(_SERVERS)
        ]
        try:
            for each in made:
                each.wait()
            while tracker.free(KEY) < _SERVERS:
                time.sleep(0.05)
            yield Tracker("127.0.0.1", tracker.port)
        finally:
            for each in made:
                each.end()


def rates() -> list[Rate]:
    """Return what one server measures, and what two do, of the same points."""
    with board() as tracker, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        joined = join_servers(tracker, KEY, folder)
        try:
            (kind,) = kinds_of(joined, "llvm", "fp32", 1)
            network = _network(kind, folder)
            rounds = _prepared(network)
            _measure(network, rounds, kind, 1)  # sends libraries and weights
            _measure(network, rounds, kind, _SERVERS)
            found: dict[int, list[float]] = {1: [], _SERVERS: []}
            for _ in range(_TURNS):
                for servers, some in found.items():
                    some.append(_measure(network, rounds, kind, servers))
        finally:
            for session in joined:
                session.close()
    return [Rate(servers, tuple(some)) for servers, some in found.items()]


def report(found: Sequence[Rate]) -> str:
    """Return it in Markdown."""
    rows = [
        [str(each.servers), f"{each.middle:.1f}", " ".join(f"{rate:.1f}" for rate in each.rates),
         f"{each.middle / found[0].middle:.2f}"]
        for each in found
    ]  # fmt: skip
    title = f"# Points of {_MODEL} measured in a second, one thread, {_ROUNDS} rounds built before"
    return f"{title}\n\n{table(['servers', 'median', 'turns', 'of one'], rows)}\n"


def _network(kind: ServerKind, folder: Path) -> TunedNetwork:
    (folder / "files").mkdir()
    job = TuningJob(
        knowledge=Knowledge.of(None, kind.ctx.compiler, kind.facts.model),
        toolchain=KernelLibrary(kind.ctx.compiler),
        session=ServerPool(kind.sessions, kind.is_alike),
        folder=folder / "files",
        limits=Limits(together=_TOGETHER),
    )
    model = TunedModel(_MODEL, lambda: fusion.compile(str(make(_MODEL).path)))
    models = JobModels(kind.ctx, job)
    with kind.ctx.target:
        given = read_models(str(make(_MODEL).path), {}, {})
        models.add_all(given, [model], Measuring(kind.ctx, job.knowledge), lambda: None)
    return job.networks[0]


def _prepared(network: TunedNetwork) -> list[PreparedRound]:
    return [network.prepare(Deadline.after(600.0), lambda: None) for _ in range(_ROUNDS)]


def _measure(network: TunedNetwork, rounds: Sequence[PreparedRound], kind: ServerKind, servers: int) -> float:
    """Return how many candidates beside the defaults so many servers measure in a second."""
    pool = ServerPool(kind.sessions[:servers], kind.is_alike)
    network.bench.session = pool
    started = time.perf_counter()
    with ThreadPoolExecutor(servers) as threads:
        results = list(threads.map(lambda each: network.measure(each, Deadline.after(_ROUND_S)), rounds))
    seconds = time.perf_counter() - started
    count = sum(len(decision.times) - 1 for each in results for decision in each.decisions if len(decision.times) > 1)
    print(f"{servers} servers: {count} candidates in {seconds:.2f} s", file=sys.stderr, flush=True)
    return count / seconds
