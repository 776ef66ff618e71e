"""What the worker of placements measures: saved modules that compute the same."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class ModuleExperiment:
    """Saved modules of one model.

    Attributes:
        modules: Paths; the first is that which others have to beat, and to agree with.
        seconds: To measure for.
        tolerance: By how much results may differ from the first's, as a share of the largest of those.
    """

    modules: tuple[str, ...]
    seconds: float
    tolerance: float

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


def read_experiment(path: Path) -> ModuleExperiment:
    """Return what `write` of one wrote."""
    fields = json.loads(path.read_text())
    return ModuleExperiment(tuple(fields["modules"]), fields["seconds"], fields["tolerance"])
