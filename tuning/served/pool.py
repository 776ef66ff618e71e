"""Servers of one kind of CPU: whoever measures gets one that is free, and another where it is lost."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace

from fusion.system.deadline import Deadline
from tuning.experiment import Experiment
from tuning.measuring_session import Results
from tuning.messages import ServerFacts
from tuning.served.session import ServerSession

_REJOIN_S = 10.0
"""In which a server that was lost may be there again, or another one."""
_MOST_LOSSES = 2
"""Servers that an experiment may take with it."""


class ServerPool:
    """An `ExperimentRunner` for several threads.

    Attributes:
        lost: Why servers were lost, one text each.
    """

    def __init__(self, sessions: Sequence[ServerSession], is_alike: Callable[[ServerFacts], bool]) -> None:
        """`sessions` have joined; `is_alike` says whether another server is of this kind."""
        self.lost: list[str] = []
        self._idle, self._alive = deque(sessions), list(sessions)
        self._is_alike = is_alike
        self._asking = ThreadPoolExecutor(1, "fusion asks for servers")
        """Sessions end with the thread that asks for them: this one stays."""
        self._changed = threading.Condition()
        self._is_closed = False

    @property
    def alive(self) -> int:
        """How many servers measure, or may be there again."""
        return len(self._alive)

    def run(self, experiment: Experiment) -> Results:
        """Return the results of `experiment` from a server as soon as one is free, which are empty where none was in
        its time; `lost` says why it has none: there is no server any more, or it took several with it."""
        losses, ends = 0, Deadline.after(experiment.seconds)
        while (session := self._take()) is not None:
            if ends.left <= 0:
                self._give_back(session)
                return Results()
            results = session.run(replace(experiment, seconds=ends.left))
            if not results.lost:
                self._give_back(session)
                return results
            losses += 1
            self._replace(session, results.lost)
            if losses == _MOST_LOSSES:
                return Results(lost=f"{losses} servers were lost as they measured it, the last one so: {results.lost}")
        return Results(lost=self.lost[-1] if self.lost else "the servers were given back")

    def close(self) -> None:
        """Give all servers back; what is being measured ends with it."""
        with self._changed:
            self._is_closed = True
            sessions = list(self._alive)
            self._changed.notify_all()
        for session in sessions:
            session.close()
        self._asking.shutdown()

    def _take(self) -> ServerSession | None:
        """Return one that is free; None where there is none any more."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_closed or self._idle or not self._alive)
            return None if self._is_closed or not self._idle else self._idle.popleft()

    def _give_back(self, session: ServerSession) -> None:
        with self._changed:
            self._idle.append(session)
            self._changed.notify_all()

    def _replace(self, session: ServerSession, why: str) -> None:
        """Ask for a server in the place of one that was lost, beside what others measure."""
        session.close()
        with self._changed:
            self.lost.append(why)
        if not self._is_closed:
            threading.Thread(target=self._join, args=(session,), name="fusion joins a server", daemon=True).start()

    def _join(self, session: ServerSession) -> None:
        with suppress(RuntimeError):  # all servers are given back
            self._asking.submit(session.ask, _REJOIN_S).result()
            answer = session.joined()
            if isinstance(answer, ServerFacts) and self._is_alike(answer) and not self._is_closed:
                self._give_back(session)
                return
        session.close()
        with self._changed:
            self._alive.remove(session)
            self._changed.notify_all()
