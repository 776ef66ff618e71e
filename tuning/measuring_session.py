"""The worker process as seen from here: what it is asked, how long it may take, and what its end says of a kernel."""

from __future__ import annotations

import os
import queue
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Protocol

from fusion.system.process_groups import kill_group
from tuning.decide import Decision
from tuning.experiment import Experiment
from tuning.messages import (
    Answer,
    Comparing,
    Failed,
    Lost,
    MeasuredNetwork,
    Question,
    Trial,
    Trying,
    read_answer,
    write_question,
)
from tuning.patience import Patience

_PATIENCE_S = 30.0
"""Without an answer while candidates run for the first time, the longest of which take seconds with bad loops; beside
the time that an experiment asks for, where none is being tried. Of the process's own: see `Patience`."""
_MOST_CRASHES = 3
_COMMAND = "from tuning.worker import main; main()"


class Measurable(Protocol):
    """An experiment.

    Attributes:
        seconds: To measure for at most.
    """

    @property
    def seconds(self) -> float: ...

    def write(self, path: Path) -> None:
        """Write what the worker reads to `path`."""
        ...


@dataclass
class Results:
    """What came of an experiment.

    Attributes:
        decisions: Of each kernel; empty where the experiment failed.
        before, after: Seconds of the network without and with what the decisions say.
        crashed: Candidates that failed: they ended the worker, it did not come back from them, or they raised.
        reasons: How each of those did.
        notes: Why others were not measured.
        failure: Why there are no decisions.
        ended: Whether the process has ended, or did not come back, for whatever reason.
        begun: Whether it had said before that it tries something.
        lost: Why the server that was to measure is gone, which says nothing of the candidates.
    """

    decisions: list[Decision] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    crashed: list[Trial] = field(default_factory=list)
    reasons: dict[Trial, str] = field(default_factory=dict)
    notes: dict[Trial, str] = field(default_factory=dict)
    failure: str = ""
    ended: bool = False
    begun: bool = False
    lost: str = ""


class ExperimentRunner(Protocol):
    """What measures networks, here or elsewhere."""

    def run(self, experiment: Experiment) -> Results:
        """Return the results of `experiment`."""
        ...


class MeasuringSession:
    """Runs experiments in one process, which is started anew after a crash."""

    def __init__(
        self, folder: Path, command: str = _COMMAND, arguments: Sequence[str] = (), patience: float | None = None
    ) -> None:
        """`folder` is for files, and is where the process runs; `command` is Python code that answers as
        `tuning.worker` does, given `arguments`, and not later than after so many seconds of `patience`."""
        self._folder = folder
        self._command = command
        self._arguments = arguments
        self._patience = _PATIENCE_S if patience is None else patience
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> MeasuringSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, experiment: Measurable) -> Results:
        """Return the results of `experiment`; candidates that crash or hang are left out and reported."""
        path = self._folder / "experiment.json"
        experiment.write(path)
        results = Results()
        while not (results.decisions or results.failure or results.lost):
            self._try(experiment, path, results)
            if len(results.crashed) > _MOST_CRASHES:
                results.failure = "too many candidates crash"
        return results

    def _try(self, experiment: Measurable, path: Path, results: Results) -> None:
        """Ask once, and note in `results` what came of it."""
        trying, patience = None, self._patience + experiment.seconds
        try:
            self._ask(Question(str(path), tuple(results.crashed)))
            while isinstance(answer := self._answer(patience), Trying | Comparing):
                results.begun = True
                trying = answer.trial if isinstance(answer, Trying) else trying
                patience = self._patience + (0.0 if isinstance(answer, Trying) else experiment.seconds)
            if isinstance(answer, MeasuredNetwork):
                results.decisions = list(answer.decisions)
                results.before, results.after = answer.before, answer.after
                results.notes.update(answer.reasons)
                results.failure = "" if results.decisions else "nothing was measured"
            elif isinstance(answer, Failed):
                _blame(trying, results, answer.why)
            elif isinstance(answer, Lost):
                results.lost = answer.why
            else:
                raise ValueError(f"{answer} is no answer")
        except (OSError, queue.Empty, EOFError, ValueError) as error:
            self._end()
            results.ended = True
            self._note_end(trying, results, _what_ended(error, patience))
        except BaseException:  # an interrupt: what is answered late would be taken for the answer to the next question
            self._end()
            raise

    def _note_end(self, trying: Trial | None, results: Results, why: str) -> None:
        """Note in `results` what the end of the process says."""
        _blame(trying, results, why)

    def _ask(self, question: Question) -> None:
        if self._process is not None and self._process.poll() is not None:
            self._end()  # between two questions: with the thread that started it
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{write_question(question)}\n")
        self._process.stdin.flush()

    def _answer(self, seconds: float) -> Answer:
        """Return the next answer.

        Raises:
            queue.Empty: There was none in time.
            EOFError: The process has ended.
            ValueError: It is none.
        """
        assert self._process is not None
        line = Patience(self._process.pid).wait(self._answers, seconds)
        if not line:
            raise EOFError
        return read_answer(line)

    def _start(self) -> None:
        here = [os.path.abspath(entry) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._command, *self._arguments], cwd=self._folder, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(here)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        self._answers = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True).start()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        kill_group(process)
        assert process.stdin is not None
        with suppress(OSError):  # what was not flushed has no reader any more
            process.stdin.close()


def _blame(trying: Trial | None, results: Results, why: str) -> None:
    """Note that it is the fault of what was tried last; where that is the default, or nothing, the experiment fails."""
    if trying is None or trying.candidate == 0 or trying in results.crashed:
        results.failure = why
    else:
        results.crashed.append(trying)
        results.reasons[trying] = why


def _what_ended(error: Exception, patience: float) -> str:
    """Return what became of the process, of which an exception was all that was seen."""
    if isinstance(error, queue.Empty):
        return f"the process that measures did not answer for {patience:.0f} s"
    if isinstance(error, EOFError):
        return "the process that measures ended"
    return f"the process that measures ended: {type(error).__name__}: {error}"


def _pump(lines: IO[str], answers: queue.SimpleQueue[str]) -> None:
    """Hand on each line, and "" after the last."""
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")
