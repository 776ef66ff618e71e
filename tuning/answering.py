"""What processes that measure have in common: they read questions and write answers, a line each."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection
from pathlib import Path

from tuning.confine import keep_output
from tuning.messages import Answer, Failed, MeasuredNetwork, Trial, read_question, write_answer


def answer_questions(measure: Callable[[Path, Collection[Trial]], MeasuredNetwork]) -> None:
    """Answer until there are no more lines; `measure` takes the file of an experiment and what is not to be run."""
    keep_output()
    for line in sys.stdin:
        question = read_question(line)
        try:
            say(measure(Path(question.experiment), question.skipped))
        except Exception as error:  # whatever kernels, modules and libraries raise
            say(Failed(f"{type(error).__name__}: {error}"))


def say(answer: Answer) -> None:
    """Write an answer for the process that asked."""
    print(write_answer(answer), flush=True)
