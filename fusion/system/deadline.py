"""The clock of what a compilation measures: one, which all that measure something share."""

from __future__ import annotations

import time
from dataclasses import dataclass
from math import inf


@dataclass(frozen=True)
class Deadline:
    """A point in time.

    Attributes:
        at: By `time.monotonic`.
    """

    at: float = inf

    @staticmethod
    def after(seconds: float) -> Deadline:
        """Return the point so many seconds from now."""
        return Deadline(time.monotonic() + seconds)

    @property
    def left(self) -> float:
        """Seconds until then; below 0 where it is over."""
        return self.at - time.monotonic()

    def within(self, seconds: float) -> Deadline:
        """Return the sooner of this and so many seconds from now."""
        return min(self, Deadline.after(seconds), key=lambda each: each.at)

    def before(self, seconds: float) -> Deadline:
        """Return the point so many seconds before this."""
        return Deadline(self.at - seconds)
