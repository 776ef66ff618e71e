"""What comes of an experiment, given something that runs its network: candidates are compared, and the best run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from fusion.system.deadline import Deadline
from tuning.decide import decide
from tuning.experiment import Experiment
from tuning.messages import MeasuredNetwork
from tuning.rounds import Choice, Rounds

_COMPARING = 0.85
"""Share of the time that candidates are compared for; the rest is for the network with what was chosen."""
RunTurnsUntil = Callable[[Sequence[Choice], Deadline], Iterable[Sequence[float]]]
"""As `tuning.rounds.RunTurns`, which runs none after a point in time."""


def measured_network(
    experiment: Experiment, kernels: Sequence[int], run: RunTurnsUntil, candidates: Sequence[Sequence[int]]
) -> MeasuredNetwork:
    """Return what the candidates for each kernel take, all of which have run before, and the network with the best, in
    the time of an experiment from now on.

    Args:
        kernels: The kernel of each step that a run takes.
        candidates: Of each kernel, the default first.
    """
    compared_by, ends = (Deadline.after(share * experiment.seconds) for share in (_COMPARING, 1.0))

    def rounds(until: Deadline) -> Rounds:
        return Rounds(kernels, lambda turns: run(turns, until), lambda: until.left < 0, experiment.evenly)

    uses = Counter(kernels)
    compared = rounds(compared_by).compare(candidates)
    decisions = [decide(times, uses[kernel]) for kernel, times in enumerate(compared)]
    chosen = [decision.candidate for decision in decisions]
    before, after = rounds(ends).check([0] * len(candidates), chosen)
    return MeasuredNetwork(tuple(decisions), before, after)
