"""An engine in the process of a test, for tests that are not of processes: to start one takes seconds, which import
TVM."""

from __future__ import annotations

from typing import Any

import bench.peers
from bench.remote import EngineError
from bench.serve import answer
from bench.worker import Server


class EngineHere:
    """What `bench.remote.Worker` is, but for the process: it answers, or raises, as that does."""

    def __init__(self, engine: str, threads: int) -> None:
        self.engine = engine
        self._server = Server(bench.peers.engine(engine))
        self._server._base_rss = 0  # the peak of this process was reached long ago: it would grow by nothing

    def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
        """Return what the method of that name returns."""
        done, result = answer(self._server, method, arguments)
        if not done:
            raise EngineError(f"{method}: {result}")
        return result

    def __enter__(self) -> EngineHere:
        return self

    def __exit__(self, *_: object) -> None: ...
