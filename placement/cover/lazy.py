"""Measures only the candidates that the best cover may have."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from placement.cover.problem import Cover, CoverProblem
from placement.cover.search import LIMIT, find_cover


@dataclass(frozen=True)
class MeasuredCover:
    """What was found.

    Attributes:
        cover: The best cover, of measured candidates only.
        measured: Seconds by candidate.
    """

    cover: Cover
    measured: Mapping[int, float]


def find_measured_cover(
    problem: CoverProblem, measure: Callable[[int], float], known: Mapping[int, float], limit: int = LIMIT
) -> MeasuredCover:
    """Return the best cover, and all that is known of its candidates then.

    Where no candidate is faster than `problem` takes for it, no cover of others is better: one that is not measured is
    left out only if it would not be chosen even so.

    Args:
        problem: Its candidates have what each takes at least, such as the roofline of its operators.
        measure: Returns the seconds of the candidate at a position, infinite where it fails. Asked at most once for
            each.
        known: What was measured before.
        limit: As for `find_cover`.

    Raises:
        Declined: Too much fails for a cover.
    """
    measured = dict(known)
    while True:
        cover = find_cover(_with(problem, measured), limit)
        asked = [index for index in cover.chosen if index not in measured]
        if not asked:
            return MeasuredCover(cover, measured)
        # The longest first: whoever measures may do so for a time only.
        asked.sort(key=lambda index: problem.candidates[index].seconds, reverse=True)
        measured.update((index, measure(index)) for index in asked)


def _with(problem: CoverProblem, measured: Mapping[int, float]) -> CoverProblem:
    candidates = enumerate(problem.candidates)
    return replace(
        problem,
        candidates=tuple(replace(each, seconds=measured.get(index, each.seconds)) for index, each in candidates),
    )
