"""The process that tries libraries: it imports, asks and opens as the one that asks will."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from fusion.apart.questions import read_question
from fusion.errors import NotInstalledError
from fusion.runtime import import_compiler
from tuning.answering import answer_questions, begin_answering, say
from tuning.decide import Decision
from tuning.messages import MeasuredNetwork, ServerLostError, Trial, Trying


def main() -> None:
    """Try libraries until there are no more lines."""
    begin_answering()
    answer_questions(_answer)


def _answer(path: Path, _: Collection[Trial]) -> MeasuredNetwork:
    """Do what is asked; return what that took.

    Raises:
        ServerLostError: This process lacked memory, or room on a disk, which says nothing of the library.
    """
    answered_by, imports_compiler, fields = read_question(path)
    if imports_compiler:
        with suppress(NotInstalledError):
            import_compiler()  # without PyTorch, which `import tvm` would bring along
    answer, started = import_module(answered_by).answer, time.perf_counter()
    say(Trying(Trial(0, 0)))  # from here on, an end is the library's fault
    try:
        answer(**fields)
    except (MemoryError, OSError) as error:
        raise ServerLostError(f"{type(error).__name__}: {error}") from error
    took = time.perf_counter() - started
    return MeasuredNetwork((Decision(0, took, took, 1),), took, took)
