"""Runs every node test in worker processes that may crash or hang without ending the suite."""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SECONDS_PER_TEST = 300.0
"""After which it hangs: each takes less than 2 s of CPU time, which a busy machine may not give for minutes."""
SECONDS_TO_START = 300.0


@dataclass(frozen=True)
class Outcome:
    """What became of one node test.

    Attributes:
        outcome: "native", "fallback" or "unsupported".
        reason: Why it is not native; empty for native.
    """

    outcome: str
    reason: str


class Worker:
    """One process that runs tests by name; restarted after a crash or a hang.

    Attributes:
        names: Of all tests, once it has started; see `cases.load_cases`.
        plain: Of those whose inputs and outputs are tensors, of no strings.
    """

    def __init__(self, engine: str) -> None:
        self._engine = engine
        self._process: subprocess.Popen[str] | None = None
        self.names: list[str] = []
        self.plain: list[str] = []

    def start(self) -> None:
        """Start the process and wait until it has generated the tests."""
        command = [sys.executable, "-m", "tests.onnx_nodes.worker", self._engine]
        self._process = subprocess.Popen(
            command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        reply = json.loads(self._read_line(SECONDS_TO_START))
        self.names, self.plain = reply["ready"], reply["plain"]

    def run(self, name: str) -> Outcome:
        """Return the outcome of the test `name`; a crash or a hang of the process is one."""
        if self._process is None:
            self.start()
        assert self._process is not None
        assert self._process.stdin is not None
        self._process.stdin.write(name + "\n")
        self._process.stdin.flush()
        line = self._read_line(SECONDS_PER_TEST)
        if line:
            reply = json.loads(line)
            return Outcome(reply["outcome"], reply["reason"])
        hung = self._process.poll() is None
        self.stop()
        return Outcome("unsupported", "hang" if hung else "crash")

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            for stream in (self._process.stdin, self._process.stdout):
                if stream is not None:
                    stream.close()
        self._process = None

    def _read_line(self, seconds: float) -> str:
        assert self._process is not None
        assert self._process.stdout is not None
        lines: queue.Queue[str] = queue.Queue()
        reader = threading.Thread(
            target=lambda out: lines.put(out.readline()), args=(self._process.stdout,), daemon=True
        )
        reader.start()
        try:
            return lines.get(timeout=seconds)
        except queue.Empty:
            return ""


def run_all(engine: str = "fusion", workers: int = 2, only: str = "") -> dict[str, Outcome]:
    """Return the outcome of every node test whose name contains `only`, by name."""
    first = Worker(engine)
    first.start()
    names: queue.Queue[str] = queue.Queue()
    for name in first.names:
        if only in name:
            names.put(name)
    outcomes: dict[str, Outcome] = {}
    pool = [first, *(Worker(engine) for _ in range(workers - 1))]
    threads = [threading.Thread(target=_drain, args=(worker, names, outcomes)) for worker in pool]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return dict(sorted(outcomes.items()))


def _drain(worker: Worker, names: queue.Queue[str], outcomes: dict[str, Outcome]) -> None:
    while True:
        try:
            name = names.get_nowait()
        except queue.Empty:
            worker.stop()
            return
        outcomes[name] = worker.run(name)
