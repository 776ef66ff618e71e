"""What the process that tries libraries is asked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class LibraryTrial:
    """What a library takes of a graph, of which a part is exported and opened.

    Attributes:
        library: Its name.
        graph: Path of a module with the graph.
        inputs: How many parameters of `main` are none of its large constants.
        threads: To open a part for.
        seconds: For measurements, of which there are none.
    """

    library: str
    graph: str
    inputs: int
    threads: int
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class Opening:
    """What a library exported, which is opened and not run.

    Attributes:
        library: Its name.
        exported: Path of that.
        threads: To open it for.
        seconds: For measurements, of which there are none.
    """

    library: str
    exported: str
    threads: int
    seconds: float = 0.0

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


def read_question(path: Path) -> LibraryTrial | Opening:
    """Return what `write` of one of them wrote."""
    fields = json.loads(path.read_text())
    return Opening(**fields) if "exported" in fields else LibraryTrial(**fields)
