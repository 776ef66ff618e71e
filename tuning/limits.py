"""How far a search goes. In a file of its own, as those who set it need nothing else of tuning before they measure."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Limits:
    """How far a search goes.

    Attributes:
        points: Of a kernel beside its default.
        together: Of a network in a round.
    """

    points: int = 1 << 30
    together: int = 1 << 30
