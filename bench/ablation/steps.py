"""The forms of a model, from no technique to all of them."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from itertools import pairwise

from bench import protocol, zoo
from bench.peers import FORM, OURS
from bench.peers.engine import Job
from bench.result import ComparisonResult
from partition.techniques import Technique

_WORDS = [technique.name.lower() for technique in Technique]
ENGINES = (*(FORM + "+".join(_WORDS[:count]) for count in range(len(_WORDS))), OURS)
"""Engines of no technique, of the first one, of the first two, and so on; the last has all and is fusion itself."""

NAMES = ("none", *(f"+ {word}" for word in _WORDS))
"""What a table calls them."""


@dataclass(frozen=True)
class Ablation:
    """The forms of one model, measured in the same rounds."""

    result: ComparisonResult

    @property
    def factors(self) -> list[float | None]:
        """For each technique, the median over the rounds of the latency without it over that with it; then that of
        none over all. None where a form has no times."""
        steps = [self._factor(before, after) for before, after in pairwise(ENGINES)]
        return [*steps, self._factor(ENGINES[0], ENGINES[-1])]

    def _factor(self, before: str, after: str) -> float | None:
        slow, fast = (self.result.engines[name].rounds_ms for name in (before, after))
        if not fast or len(slow) != len(fast):
            return None
        return statistics.median(left / right for left, right in zip(slow, fast, strict=True))


def measure(name: str, threads: int, rounds: int, seconds: float) -> Ablation:
    """Return the forms of a zoo model, each in a process of its own, checked by the float64 gate.

    Raises:
        EngineError: ONNX Runtime, which all are checked against, failed.
    """
    model = zoo.make(name)
    job = Job(model.path, model.shapes, threads, zoo_name=name)
    plan = protocol.ComparisonPlan(threads, rounds, seconds, ENGINES[:-1], checks=1)
    return Ablation(protocol.compare(job, plan, model.inputs, name))
