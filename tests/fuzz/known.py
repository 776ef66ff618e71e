"""Differences from ONNX Runtime that are permitted, each by a row of docs/limits.md."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.fuzz.case import Outcome


@dataclass(frozen=True)
class Known:
    """A permitted difference.

    Attributes:
        row: The first cell of its row in docs/limits.md.
        verdict: Of the outcomes it covers.
        where, detail: Patterns of what they say.
    """

    row: str
    verdict: str
    where: str = ""
    detail: str = ""


KNOWN: tuple[Known, ...] = ()


def permitted(outcome: Outcome) -> Known | None:
    """Return the row that permits `outcome`, or None."""
    return next((known for known in KNOWN if _covers(known, outcome)), None)


def _covers(known: Known, outcome: Outcome) -> bool:
    return (
        known.verdict == outcome.verdict
        and re.search(known.where, outcome.where) is not None
        and re.search(known.detail, outcome.detail) is not None
    )
