"""Which of the points that searches offer are measured next, where there is not time for all.

As FamilySeer's scheduler (Zhang et al., arXiv 2201.00194) and Ansor's before it, time goes where it is expected to gain
most; here point by point, as one run of a network measures points of all its kernels. FamilySeer's foresee step, which
measures another task of the family while their model is fresh, has nothing to do: all tasks are looked at again after
each round, and a model shared by a family gained nothing (docs/design/tuning.md).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from heapq import nlargest

from tuning.search import Offer

Allotment = dict[str, list[Offer]]
"""The points that are measured, by kernel."""


def allot(offers: Mapping[str, Sequence[Offer]], shares: Mapping[str, float], most: int) -> Allotment:
    """Return the `most` of the `offers` from which the network is expected to gain most, in the order of each kernel.

    Args:
        shares: Of each kernel, of the network's time.
    """
    worth = [
        (shares.get(name, 0.0) * offer.gain, -place, name, offer)
        for name, some in offers.items()
        for place, offer in enumerate(some)
    ]
    taken = nlargest(most, worth, key=lambda entry: entry[:3])
    found = {name: [offer for _, _, its, offer in taken if its == name] for name in offers}
    return {name: some for name, some in found.items() if some}


def expected_gain(offers: Mapping[str, Sequence[Offer]], shares: Mapping[str, float]) -> float:
    """Return by which share the network is expected to get faster by the best offer of each kernel."""
    best = {name: max((offer.gain for offer in some), default=0.0) for name, some in offers.items()}
    return sum(shares.get(name, 0.0) * gain for name, gain in best.items())
