"""What processes that measure have in common: they read questions and write answers, a line each, and end when whoever
asks has ended."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Collection
from pathlib import Path
from queue import SimpleQueue

from tuning.confine import end_with_parent, keep_output
from tuning.messages import Answer, Failed, Lost, MeasuredNetwork, ServerLostError, Trial, read_question, write_answer


def begin_answering() -> None:
    """Let this process end with the one that asks, and leave standard output to answers."""
    end_with_parent()
    keep_output()


def answer_questions(measure: Callable[[Path, Collection[Trial]], MeasuredNetwork]) -> None:
    """Answer until there are no more lines; `measure` takes the file of an experiment and what is not to be run."""
    lines = SimpleQueue[str]()
    threading.Thread(target=_read, args=(lines,), daemon=True).start()
    while True:
        question = read_question(lines.get())
        try:
            say(measure(Path(question.experiment), question.skipped))
        except ServerLostError as error:
            say(Lost(str(error)))
        except Exception as error:  # whatever kernels, modules and libraries raise
            say(Failed(f"{type(error).__name__}: {error}"))


def say(answer: Answer) -> None:
    """Write an answer for the process that asked."""
    print(write_answer(answer), flush=True)


def _read(lines: SimpleQueue[str]) -> None:
    """Hand on each line; behind the last, nobody asks any more, and the process ends, whatever is being measured: no
    system but Linux ends it with its parent."""
    for line in sys.stdin:
        lines.put(line)
    os._exit(0)
