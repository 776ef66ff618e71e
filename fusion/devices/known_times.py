"""What kernels took on a CPU like this one where they were measured before."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from dataclasses import dataclass

from tvm import tirx

from fusion.context import Context


@dataclass(frozen=True)
class HostTimes:
    """What one call of each kernel takes.

    Attributes:
        seconds: By name.
        known: Of how many it was measured; of the others it is estimated.
    """

    seconds: Mapping[str, float]
    known: int = 0

    @property
    def source(self) -> str:
        """Where they are from, a sentence."""
        if not self.known:
            return "times are the backend's estimates"
        rest = len(self.seconds) - self.known
        estimates = f", those of {rest} are estimates as many times as long as measured ones were" if rest else ""
        return f"times of {self.known} kernels were measured before, for other models too{estimates}"


def with_known(estimates: Mapping[str, float], known: Mapping[str, float]) -> HostTimes:
    """Return `known` times of kernels in place of `estimates`, in seconds.

    A plan weighs both against each other: the other estimates are multiplied by the median of what known times are of
    theirs.
    """
    ratios = [known[name] / each for name, each in estimates.items() if name in known and each > 0.0]
    scale = statistics.median(ratios) if ratios else 1.0
    times = {name: known.get(name, each * scale) for name, each in estimates.items()}
    return HostTimes(times, len(known.keys() & times.keys()))


def known_times(sources: Mapping[str, tirx.PrimFunc], ctx: Context) -> dict[str, float]:
    """Return the seconds of a call of those kernels that the database of `ctx` knows, where a model is lowered for
    another device and its kernels have loops for this CPU beside.

    Args:
        sources: Kernels before they have loops, by name.
    """
    if ctx.database is None:
        return {}
    # Here, not above: without a database nothing is looked for.
    from tuning.known import Knowledge
    from tuning.points import recall

    return dict(recall(Knowledge.of(ctx.database, ctx.compiler).kernels(sources)).seconds)
