"""What the batches of one model found, as data; `bench.batches.report` prints it."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field
from typing import Any

from bench.gate import Verdict
from bench.result import ComparisonResult, EngineResult


@dataclass
class BatchesResult:
    """One model, opened once by every engine.

    Attributes:
        model: Name in the zoo.
        batches: What every engine did with each batch; only those that were timed have rounds.
        forms: How many forms ours had in the end, one for all batches at best; None where it failed.
    """

    model: str
    batches: dict[int, ComparisonResult] = field(default_factory=dict)
    forms: int | None = None

    @property
    def passed(self) -> bool:
        """Whether ours ran every batch and was right."""
        return all(compared.passed for compared in self.batches.values())

    def as_json(self) -> str:
        """Return all of it as text, which `read` reads."""
        return json.dumps(dataclasses.asdict(self), indent=1)

    @classmethod
    def read(cls, text: str) -> BatchesResult:
        """Return what `as_json` wrote."""
        found = json.loads(text)
        batches = {int(size): _comparison(compared) for size, compared in found["batches"].items()}
        return cls(found["model"], batches, found["forms"])


def _comparison(found: dict[str, Any]) -> ComparisonResult:
    engines = {
        name: EngineResult(**{**engine, "verdict": engine["verdict"] and Verdict(**engine["verdict"])})
        for name, engine in found["engines"].items()
    }
    shapes = {name: tuple(shape) for name, shape in found["shapes"].items()}
    return ComparisonResult(**{**found, "engines": engines, "shapes": shapes})
