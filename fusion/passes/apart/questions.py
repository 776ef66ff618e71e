"""What the process that tries libraries is asked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path


@dataclass(frozen=True)
class _Question:
    """A question, whose answer takes no measurements."""

    @property
    def seconds(self) -> float:
        """For measurements."""
        return 0.0

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps(asdict(self)))


@dataclass(frozen=True)
class LibraryTrial(_Question):
    """What a library takes of a graph, of which a part is exported and opened.

    Attributes:
        library: Its name.
        graph: Path of a module with the graph.
        inputs: How many parameters of `main` are none of its large constants.
        threads: To open a part for.
    """

    library: str
    graph: str
    inputs: int
    threads: int


@dataclass(frozen=True)
class Opening(_Question):
    """What a library exported, which is opened and not run.

    Attributes:
        library: Its name.
        exported: Path of that.
        threads: To open it for.
    """

    library: str
    exported: str
    threads: int


def read_question(path: Path) -> LibraryTrial | Opening:
    """Return what `write` of one of them wrote."""
    fields = json.loads(path.read_text())
    return Opening(**fields) if "exported" in fields else LibraryTrial(**fields)
