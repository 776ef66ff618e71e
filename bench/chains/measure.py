"""Times the form that fusion chooses of each chain beside the other one, where there is one, and the peers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import log

from bench.chains.draw import DrawnChain
from bench.chains.verdict import ChainVerdict, verdict
from bench.kernels.measure import Measured, measure
from bench.peers import FORM
from bench.protocol import ComparisonPlan

UNFUSED = f"{FORM}epilogue+stitching+rewrites"
"""Every technique but kernels of several anchors."""
FORCED = f"{FORM}epilogue+stitching+intensive+rewrites+forced"
"""Kernels of several anchors wherever a template takes them."""

_NOISE = log(1.03)
"""Forms whose times differ by less are taken to be equal."""


@dataclass(frozen=True)
class Timed:
    """A chain, what the cost tables said of it, and what was measured.

    Attributes:
        peers: The other engines that it is compared with, forms of ours left out.
    """

    chain: DrawnChain
    verdict: ChainVerdict
    measured: Measured
    peers: tuple[str, ...]

    @property
    def over_peer(self) -> float | None:
        """The better peer's latency over ours."""
        found = self.measured.result.ratios
        return min((found[name].median for name in self.peers if name in found), default=None)

    @property
    def over_unfused(self) -> float | None:
        """The unfused form's latency over ours; 1 where fusion chooses that form."""
        return self._over(UNFUSED) if self.verdict.fused else 1.0

    @property
    def gain(self) -> float | None:
        """The unfused form's latency over that of the fused one; None where there are not both."""
        if self.verdict.fused:
            return self._over(UNFUSED)
        forced = self._over(FORCED)
        return None if forced is None else 1 / forced

    @property
    def ranked(self) -> bool | None:
        """Whether the cost tables choose the faster form; None where there are not both, or both are equal."""
        if self.gain is None or abs(log(self.gain)) < _NOISE:
            return None
        return (self.gain > 1) == self.verdict.fused

    def _over(self, engine: str) -> float | None:
        ratio = self.measured.result.ratios.get(engine)
        return None if ratio is None else ratio.median


def time_chains(chains: Sequence[DrawnChain], plan: ComparisonPlan) -> Iterator[Timed]:
    """Yield each chain once it has been compiled, checked by the float64 gate and timed."""
    verdicts = {chain.case.name: verdict(chain.case.model, plan.threads) for chain in chains}
    for others in ((UNFUSED,), (FORCED,), ()):
        chosen = [chain for chain in chains if _other_forms(verdicts[chain.case.name]) == others]
        found = measure([chain.case for chain in chosen], replace(plan, peers=(*others, *plan.peers)))
        for chain, measured in zip(chosen, found, strict=True):
            yield Timed(chain, verdicts[chain.case.name], measured, plan.peers)


def _other_forms(found: ChainVerdict) -> tuple[str, ...]:
    """Return the forms that differ from the one that fusion chooses."""
    if found.fused:
        return (UNFUSED,)
    return (FORCED,) if found.estimates else ()
