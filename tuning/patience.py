"""How long a process may take to answer: time in which it waited for a CPU, or in which this one was stopped, is not
its own."""

from __future__ import annotations

import queue
from dataclasses import dataclass
from pathlib import Path

_SLICE_S = 1.0
"""After which it is looked what became of the time."""
_MOST = 10.0
"""Times as long as on an idle machine: more threads than CPUs, all of which spin, wait for these for ever."""


@dataclass(frozen=True)
class Patience:
    """That with a process which others keep from its CPUs: one that computes all the time on a tenth of a CPU gets ten
    times as long, one that sleeps no longer.

    Attributes:
        process: Its number.
    """

    process: int

    def wait(self, lines: queue.SimpleQueue[str], seconds: float) -> str:
        """Return the next of `lines`.

        Raises:
            queue.Empty: There was none in so many seconds of the process's own.
        """
        left, most = seconds, _MOST * seconds
        waited = self._waited()
        while True:
            given = min(_SLICE_S, left)
            try:
                return lines.get(timeout=given)
            except queue.Empty:
                before, waited = waited, self._waited()
                longest = max((now - before.get(thread, now) for thread, now in waited.items()), default=0.0)
                left, most = left - max(0.0, given - longest), most - given
                if min(left, most) <= 0.0:
                    raise

    def _waited(self) -> dict[str, float]:
        """Return for how many seconds each of its threads has waited for a CPU, as proc(5) tells it; nothing where the
        system does not."""
        waited: dict[str, float] = {}
        for thread in Path(f"/proc/{self.process}/task").glob("*"):
            try:
                waited[thread.name] = int((thread / "schedstat").read_text().split()[1]) * 1e-9
            except (OSError, ValueError, IndexError):  # it has ended meanwhile, or the system counts otherwise
                continue
        return waited
