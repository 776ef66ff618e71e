"""The parent's side of a process that measures: starts it, asks it, and ends it when it is late, silent or dead."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any, TypeVar

from bench.bytecode import write_bytecode

_TRACE_LINES = 3
_END_S = 5.0
P = TypeVar("P", bound="RemoteProcess")


class EngineError(Exception):
    """What a process was asked for failed, or it died or was late; the text says in what and why."""


class RemoteProcess:
    """A process that answers requests: `python -m MODULE ARGUMENTS FD`, which calls `bench.serve`. Use as a context
    manager.

    Args:
        module: What it runs.
        arguments: Before the number of the socket.
        environment: Variables that it has beside those of this process.
    """

    def __init__(self, module: str, *arguments: str, environment: Mapping[str, str] | None = None) -> None:
        write_bytecode()
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - lives as long as the worker
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONPATH": _path(), **(environment or {})},
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """Its process id."""
        return self._process.pid

    def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
        """Return what the method of that name returns there.

        Raises:
            EngineError: It raised, its process died, or it took longer than `deadline_s`; the last two end it.
        """
        self.begin(method, *arguments)
        return self.end(deadline_s)

    def begin(self, method: str, *arguments: Any) -> None:
        """Have a method called; `end` waits for what it returns, while other processes do what they were asked for.

        Raises:
            EngineError: The process died.
        """
        self._method = method
        try:
            self._connection.send((method, arguments))
        except OSError as error:
            raise EngineError(f"{method}: {self._last_words()}") from error

    def end(self, deadline_s: float) -> Any:
        """Return what the method that was begun returns; raises what `ask` does."""
        try:
            if not self._connection.poll(deadline_s):
                self.close()
                raise EngineError(f"{self._method} took longer than {deadline_s:.0f} s and was ended")
            done, result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EngineError(f"{self._method}: {self._last_words()}") from error
        if not done:
            raise EngineError(f"{self._method}: {result}")
        return result

    def close(self) -> None:
        """End the process and all that it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()

    def __enter__(self: P) -> P:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
        self._log.close()

    def _last_words(self) -> str:
        code = self._wait()
        self.close()
        self._log.seek(0)
        tail = " | ".join(self._log.read().strip().splitlines()[-_TRACE_LINES:])
        return f"the process ended with code {code}: {tail}"

    def _wait(self) -> int | None:
        """Return the process's exit code; its socket closes a moment before it is gone."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self._process.wait(_END_S)
        return None


class Worker(RemoteProcess):
    """One engine in its own process: methods are those of `bench.worker.Server`.

    Args:
        engine: Name in `bench.peers`.
        threads: Given to the numeric libraries that read their number of threads at start only.
    """

    def __init__(self, engine: str, threads: int) -> None:
        self.engine = engine
        super().__init__("bench.worker", engine, environment={"OMP_NUM_THREADS": str(threads)})


def _path() -> str:
    return os.pathsep.join(entry or os.getcwd() for entry in sys.path)
