"""The worker process as seen from here: what it is asked, how long it may take, and what its end says of a kernel."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tuning.decide import Verdict
from tuning.experiment import Experiment

_PATIENCE_S = 20.0
"""Without an answer, beside the time that an experiment asks for: the longest kernels take seconds in a bad form."""
_MOST_CRASHES = 3
_COMMAND = "from tuning.worker import main; main()"


@dataclass
class Results:
    """What came of an experiment.

    Attributes:
        verdicts: Of each kernel; empty where the experiment failed.
        before, after: Seconds of the network without and with what the verdicts say.
        crashed: (kernel, form) that ended the worker, or from which it did not come back.
        failure: Why there are no verdicts.
    """

    verdicts: list[Verdict] = field(default_factory=list)
    before: float = 0.0
    after: float = 0.0
    crashed: list[tuple[int, int]] = field(default_factory=list)
    failure: str = ""


class MeasuringSession:
    """Runs experiments in one process, which is started anew after a crash."""

    def __init__(self, folder: Path, command: str = _COMMAND) -> None:
        """`folder` is for files, and is where the process runs; `command` is Python code that answers as
        `tuning.worker` does."""
        self._folder = folder
        self._command = command
        self._process: subprocess.Popen[str] | None = None
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()

    def __enter__(self) -> MeasuringSession:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def run(self, experiment: Experiment) -> Results:
        """Return the results of `experiment`; a form in which the worker crashes or hangs is left out and reported."""
        path = self._folder / "experiment.json"
        experiment.write(path)
        results = Results()
        while not results.verdicts and not results.failure:
            self._try(experiment, path, results)
            if len(results.crashed) > _MOST_CRASHES:
                results.failure = "too many forms crash"
        return results

    def _try(self, experiment: Experiment, path: Path, results: Results) -> None:
        """Ask once, and note in `results` what came of it."""
        trying: tuple[int, int] | None = None
        try:
            self._ask(json.dumps([str(path), results.crashed]))
            while True:
                answer = self._answer(_PATIENCE_S + experiment.seconds)
                if "trying" in answer:
                    kernel, form = answer["trying"]
                    trying = int(kernel), int(form)
                elif "verdicts" in answer:
                    results.verdicts = [Verdict(**verdict) for verdict in answer["verdicts"]]
                    results.before, results.after = answer["before"], answer["after"]
                    return
                else:
                    results.failure = str(answer["failed"])
                    return
        except (OSError, queue.Empty, EOFError) as error:
            self._end()
            if trying is None or trying[1] == 0 or trying in results.crashed:
                results.failure = f"the process that measures ended: {type(error).__name__} {error}".strip()
            else:
                results.crashed.append(trying)

    def _ask(self, question: str) -> None:
        if self._process is None:
            self._start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(f"{question}\n")
        self._process.stdin.flush()

    def _answer(self, seconds: float) -> dict[str, Any]:
        """Return the next answer.

        Raises:
            queue.Empty: There was none in time.
            EOFError: The process has ended.
        """
        line = self._answers.get(timeout=seconds)
        if not line:
            raise EOFError
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _start(self) -> None:
        here = [os.path.abspath(entry) for entry in sys.path]
        self._process = subprocess.Popen(
            [sys.executable, "-c", self._command], cwd=self._folder, text=True,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(here)},
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        self._answers = queue.SimpleQueue()
        assert self._process.stdout is not None
        threading.Thread(target=_pump, args=(self._process.stdout, self._answers), daemon=True).start()

    def _end(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.kill()
        process.wait()
        assert process.stdin is not None
        with suppress(OSError):  # what was not flushed has no reader any more
            process.stdin.close()


def _pump(lines: IO[str], answers: queue.SimpleQueue[str]) -> None:
    """Hand on each line, and "" after the last."""
    with lines:
        for line in lines:
            answers.put(line)
    answers.put("")
