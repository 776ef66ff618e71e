"""What the process that tries libraries is asked."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar


@dataclass(frozen=True)
class LibraryQuestion:
    """A question, whose answer takes no measurements.

    Attributes:
        answered_by: The module whose `answer` does what is asked, given the values of all fields.
        imports_compiler: Whether that may import TVM's compiler.
        asked_for: What that is, as "to be imported", for whoever waits.
        silence_s: Seconds without an answer after which whoever waits is told for whom: what may compile a whole model
            takes its time.
        library: Name of the library that is asked.
    """

    answered_by: ClassVar[str]
    imports_compiler: ClassVar[bool]
    asked_for: ClassVar[str]
    silence_s: ClassVar[float] = 60.0
    library: str

    @property
    def seconds(self) -> float:
        """For measurements."""
        return 0.0

    def write(self, path: Path) -> None:
        """Write it to `path`."""
        path.write_text(json.dumps([self.answered_by, self.imports_compiler, asdict(self)]))


def read_question(path: Path) -> tuple[str, bool, dict[str, Any]]:
    """Return who answers what `write` of one wrote, whether that may import the compiler, and the values of fields."""
    answered_by, imports_compiler, fields = json.loads(path.read_text())
    return answered_by, imports_compiler, fields
