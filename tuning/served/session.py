"""A process that measures on a server, as seen from here."""

from __future__ import annotations

import queue
from pathlib import Path

from fusion.system.deadline import Deadline
from tuning.measuring_session import MeasuringSession, Results
from tuning.messages import Lost, ServerFacts, Trial
from tuning.served.tracker import Tracker

_COMMAND = "from tuning.served.worker import main; main()"
_PATIENCE_S = 150.0
"""Without an answer, beside the time that an experiment asks for: the process itself gives up waiting for its server
sooner, whatever it asked."""
_FIRST_S = 30.0
_START_S = 60.0
"""In which the process has come up and read what the server is."""


class ServerSession(MeasuringSession):
    """Runs experiments on a server. Whatever ends the process says that the server is lost: what candidates do there
    ends only a child of it."""

    def __init__(self, folder: Path, tracker: Tracker, key: str, first_s: float = _FIRST_S) -> None:
        """`folder` is for files of this session alone; a candidate may take `first_s` when it runs first."""
        folder.mkdir(parents=True)
        super().__init__(folder, _COMMAND, patience=_PATIENCE_S)
        self._tracker, self._key, self._first_s, self._until = tracker, key, first_s, Deadline()

    def ask(self, seconds: float) -> None:
        """Ask for a server that is free within so many seconds; what does so ends with the thread that calls this."""
        self.close()
        tracker = self._tracker
        self._arguments = tracker.host, str(tracker.port), self._key, str(seconds), str(self._first_s)
        self._start()
        self._until = Deadline.after(seconds + _START_S)

    def joined(self) -> ServerFacts | Lost:
        """Return which server it is, or why there is none."""
        try:
            answer = self._answer(max(self._until.left, 0.0))
        except (queue.Empty, EOFError, ValueError) as error:
            answer = Lost(f"the process that was to measure ended: {type(error).__name__} {error}".strip())
        if not isinstance(answer, ServerFacts):
            self.close()
        return answer if isinstance(answer, ServerFacts | Lost) else Lost(f"it answers {answer}")

    def close(self) -> None:
        """End the process, which others can measure on the server then."""
        self._end()

    def _note_end(self, trying: Trial | None, results: Results, why: str) -> None:
        results.lost = why
