"""The process that measures on a server: it asks a tracker for one, and then answers as `tuning.worker` does.

`python -c ... HOST PORT KEY SECONDS FIRST_S`: it says what the server is, or why there is none after so many seconds;
a call may take FIRST_S when it runs first.
"""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from fusion.system.cpus import cpu_model, default_threads, numbers_in
from fusion.system.deadline import Deadline
from tuning.answering import answer_questions, begin_answering, say
from tuning.experiment import Experiment, read_experiment
from tuning.measured_network import measured_network
from tuning.messages import Comparing, Lost, MeasuredNetwork, ServerFacts, ServerLostError, Trial, Trying
from tuning.rounds import Choice
from tuning.served.agent import agent_path
from tuning.served.connection import RefusedError, ServerConnection
from tuning.served.plan import Entries, ExperimentPlan
from tuning.served.tracker import Tracker, TrackerError

_LATER_S = 10.0
"""That a call may take that has run before."""
_BATCH_S = 0.25
"""For runs that are asked for together: between them the caches of the server lose what they hold."""
_AT_ONCE_S = 5.0
"""That a call of the server may take, beside what the last entry takes: what takes longer is asked for in parts."""
_MOST = 1 << 20
"""Entries of an order."""
_STATUS = Path("/proc/self/status")
_CPUS = "Cpus_allowed_list:"


def main() -> None:
    """Answer until there are no more lines, or the server is gone."""
    host, port, key, seconds, first_s = sys.argv[1:]
    begin_answering()
    try:
        server = _join(Tracker(host, int(port)), key, float(seconds))
        say(_facts(server))
    except (TrackerError, ServerLostError, RefusedError) as error:
        say(Lost(str(error)))
        return
    answer_questions(lambda path, skipped: _measure(server, read_experiment(path), skipped, float(first_s)))


def _join(tracker: Tracker, key: str, seconds: float) -> ServerConnection:
    """Return a session on a server that is free within so many seconds."""
    ends = Deadline.after(seconds)
    while True:
        match = tracker.request(key, max(ends.left, 0.1))
        try:
            return ServerConnection.open(match, agent_path())
        except ServerLostError:  # the tracker may not know yet that it has ended
            if ends.left <= 0:
                raise


def _facts(server: ServerConnection) -> ServerFacts:
    """Return what the server's machine is, as this one would be told by the same functions."""
    status = server.read(_STATUS)
    allowed = next((line.partition(":")[2] for line in status.splitlines() if line.startswith(_CPUS)), "")
    numbers = numbers_in(allowed.strip())

    def asked(name: str, *arguments: object) -> object:
        function = server.function(name)
        return None if function is None else server.call(lambda: function(*arguments))

    features = asked("tvm.codegen.llvm.GetHostCPUFeatures")
    return ServerFacts(
        address=server.match.address,
        model=cpu_model(server.read),
        flags=server.read(Path("/proc/cpuinfo")),
        threads=default_threads(numbers, server.read),
        cpu=str(asked("tvm.codegen.llvm.GetHostCPUName") or ""),
        triple=str(asked("target.llvm_get_system_triple") or ""),
        features="" if features is None else str(asked("ffi.ToJSONGraphString", features, None)),
    )


def _measure(
    server: ServerConnection, experiment: Experiment, skipped: Collection[Trial], first_s: float
) -> MeasuredNetwork:
    """Return the result of an experiment with all candidates but those to be skipped."""
    counts = experiment.candidate_counts()
    candidates = [[c for c in range(count) if Trial(kernel, c) not in skipped] for kernel, count in enumerate(counts)]
    plan = ExperimentPlan.of(experiment)
    libraries = [f"./{server.library(path)}" for path in experiment.libraries]
    server.begin(plan.as_bytes(server.data(experiment.data), libraries), _MOST)
    served = _Served(server, plan, candidates)
    taken = served.try_all(first_s)
    say(Comparing())
    kernels = [experiment.steps[place].kernel for place in taken]
    return measured_network(experiment, kernels, lambda turns, until: served.run(taken, turns, until), candidates)


@dataclass
class _Served:
    """A network that is open on a server.

    Attributes:
        candidates: Of each kernel, those that are run.
        turn_s: What a run of it takes, as far as it is known.
    """

    server: ServerConnection
    plan: ExperimentPlan
    candidates: Sequence[Sequence[int]]
    turn_s: float = _BATCH_S

    def try_all(self, first_s: float) -> list[int]:
        """Run every candidate once, so long at most, and return the steps that a run of the network takes."""
        taken, waiting = list[int](), Entries()
        for place, step in enumerate(self.plan.experiment.steps):
            if step.conditions:
                self._order(waiting, first_s)
                waiting = []
                if not self.plan.is_taken(place, self._order(self.plan.looks(place), first_s)):
                    continue
            taken.append(place)
            # The first candidate last: it leaves what the next steps are to read.
            for candidate in reversed(self.candidates[step.kernel]):
                waiting += self.plan.entries(place, candidate)
        self._order(waiting, first_s)
        return taken

    def run(self, taken: Sequence[int], turns: Sequence[Choice], until: Deadline) -> Iterator[Sequence[float]]:
        """Run steps with each choice in turn, until a point in time; yields the seconds of each step."""
        start = 0
        while start < len(turns) and until.left > 0:
            some = turns[start : start + max(1, int(_BATCH_S / self.turn_s))]
            calls = [[self.plan.entries(*each) for each in zip(taken, turn, strict=True)] for turn in some]
            given = iter(self._order([entry for turn in calls for step in turn for entry in step], _LATER_S))
            found = [[sum(next(given) for _ in step) * 1e-9 for step in turn] for turn in calls]
            self.turn_s = max(sum(map(sum, found)) / len(found), 1e-6)
            yield from found
            start += len(some)

    def _order(self, order: Entries, entry_s: float) -> Sequence[int]:
        """Return what the entries of `order` give."""
        given = list[int]()
        while len(given) < len(order):
            ran = self.server.run(order[len(given) :], entry_s, _AT_ONCE_S)
            given += ran.given
            if ran.failure:
                say(Trying(self.plan.trial(order[len(given)])))
                raise RefusedError(f"a candidate failed: {ran.failure}")
        return given


if __name__ == "__main__":
    main()
