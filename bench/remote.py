"""The parent's side of a worker: starts it, asks it, and ends it when it is late, silent or dead."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from bench.bytecode import write_bytecode

_TRACE_LINES = 3
_END_S = 5.0


class EngineError(Exception):
    """An engine failed, died or was late; the text says in what and why."""


class Worker:
    """One engine in its own process. Use as a context manager.

    Args:
        engine: Name in `bench.peers`.
        threads: Given to the numeric libraries that read their number of threads at start only.
    """

    def __init__(self, engine: str, threads: int) -> None:
        self.engine = engine
        write_bytecode()
        ours, theirs = socket.socketpair()
        self._log = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115 - lives as long as the worker
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bench.worker", engine, str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=subprocess.STDOUT,
                env=_environment(threads),
                start_new_session=True,
            )
        self._connection = Connection(ours.detach())

    @property
    def pid(self) -> int:
        """The worker's process id."""
        return self._process.pid

    def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
        """Return what `bench.worker.Server.<method>(*arguments)` returns there.

        Raises:
            EngineError: It raised, its process died, or it took longer than `deadline_s`; the last two end it.
        """
        try:
            self._connection.send((method, arguments))
            if not self._connection.poll(deadline_s):
                self.close()
                raise EngineError(f"{method} took longer than {deadline_s:.0f} s and was ended")
            done, result = self._connection.recv()
        except (EOFError, OSError) as error:
            raise EngineError(f"{method}: {self._last_words()}") from error
        if not done:
            raise EngineError(f"{method}: {result}")
        return result

    def close(self) -> None:
        """End the worker and every process it started."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._connection.close()

    def __enter__(self) -> Worker:
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


def _environment(threads: int) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": os.pathsep.join(entry or os.getcwd() for entry in sys.path),
        "OMP_NUM_THREADS": str(threads),
    }
