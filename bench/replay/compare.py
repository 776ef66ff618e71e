"""The differences between the records that two trees made of the same models."""

from __future__ import annotations

import difflib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from bench.replay.record import HASHES


@dataclass(frozen=True)
class TextDifference:
    """A text of which the two records differ.

    Attributes:
        model, name: Of which model, and the name of the file in its record.
        before, after: The texts; None where a record has no such file.
    """

    model: str
    name: str
    before: str | None
    after: str | None

    def __str__(self) -> str:
        """Return the model, the name and what became of the text."""
        if self.before is None or self.after is None:
            return f"{self.model}: {self.name} is {'new' if self.before is None else 'gone'}"
        return f"{self.model}: {self.name} differs"

    def lines(self, limit: int) -> list[str]:
        """Return the unified diff, at most `limit` lines of it."""
        before, after = ((text or "").splitlines() for text in (self.before, self.after))
        diff = list(difflib.unified_diff(before, after, "before", "after", n=2, lineterm=""))
        return diff[:limit] + ([f"... {len(diff) - limit} lines more"] if len(diff) > limit else [])


def differences(before: Path, after: Path) -> Iterator[TextDifference]:
    """Yield what differs between two folders of records; only files whose checksums differ are read."""
    models = {path.name for folder in (before, after) for path in folder.iterdir() if (path / HASHES).exists()}
    for model in sorted(models):
        old, new = (_hashes(folder / model) for folder in (before, after))
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield TextDifference(model, name, _text(before / model / name), _text(after / model / name))


def _hashes(folder: Path) -> dict[str, str]:
    path = folder / HASHES
    return dict(json.loads(path.read_text())) if path.exists() else {}


def _text(path: Path) -> str | None:
    return path.read_text() if path.exists() else None
