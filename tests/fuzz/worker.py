"""A process that tries one case after another, forked from a server that has imported everything once.

Whatever a case does to it, the parent sees: `serve` says what it is about to do, the pipe breaks when it dies, and the
parent ends it when it takes too long.
"""

from __future__ import annotations

import multiprocessing
import os
import queue
import resource
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from tests.fuzz.case import Case, Outcome
from tests.fuzz.findings import signature
from tests.fuzz.minimise import by_worker

SECONDS = 30.0
"""What a case may take."""
MEMORY = 2 << 30
"""Bytes that a worker may map beyond what it has when it starts."""
_CASES_PER_WORKER = 400
"""Then another takes over, so that what one case leaves behind does not meet all others."""


@dataclass(frozen=True)
class Job:
    """A case to try: `case` itself, or the one that `kind` makes of `seed`.

    Attributes:
        mode: "judge"; "alone", by fusion only; "make", which returns the case as it is; "values", which returns it with
            what ONNX Runtime computes for every tensor as inputs.
        guard: "" or which side of every array an inaccessible page lies on, "after" or "before".
    """

    kind: str
    seed: int
    case: Case | None = None
    mode: str = "judge"
    guard: str = ""


Answer = Callable[[Job, Callable[[str], None]], Outcome]


def serve(connection: Connection, memory: int, answer: Answer) -> None:
    """Answer jobs until the pipe closes."""
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm") as file:
        mapped = int(file.read().split()[0]) * resource.getpagesize()
    _, most = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + memory, most))
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        started = time.monotonic()
        try:
            outcome = answer(job, lambda stage: connection.send(("stage", stage)))
        except Exception:  # engines keep what fusion raises: this is a defect of the generator or of the judge
            outcome = Outcome(job.kind, job.seed, "broken", traceback.format_exc(limit=-4), case=job.case)
        connection.send(("done", replace(outcome, seconds=time.monotonic() - started)))


class Worker:
    """One such process at a time; started again after it died."""

    def __init__(self, answer: Answer, memory: int = MEMORY) -> None:
        self._answer, self._memory = answer, memory
        self._process: Any = None
        self._pipe: Any = None
        self._done = 0

    def run(self, job: Job, seconds: float = SECONDS) -> Outcome:
        """Return the outcome of `job`; the death of the process, or its end after `seconds`, is one too."""
        if self._process is None or self._done >= _CASES_PER_WORKER:
            self.stop()
            self._start()
        self._done += 1
        deadline, stage = time.monotonic() + seconds, "start"
        try:
            self._pipe.send(job)
            while self._pipe.poll(max(0.0, deadline - time.monotonic())):
                word, content = self._pipe.recv()
                if word == "done":
                    return content  # type: ignore[no-any-return]
                stage = content
        except (EOFError, BrokenPipeError, ConnectionResetError):
            return self._death(job, stage)
        self._process.kill()
        self.stop()
        return Outcome(
            job.kind, job.seed, _verdict("hang", stage), f"no answer for {seconds:.0f} s ({stage})", case=job.case
        )

    def _death(self, job: Job, stage: str) -> Outcome:
        self._process.join()
        code = self._process.exitcode or 0
        self.stop()
        name = signal.Signals(-code).name if code < 0 else f"exit {code}"
        return Outcome(job.kind, job.seed, _verdict("signal", stage), f"{name} ({stage})", case=job.case)

    def _start(self) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(["tests.fuzz.kinds"])
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=serve, args=(theirs, self._memory, self._answer), daemon=True)
        self._process.start()
        theirs.close()
        self._done = 0

    def stop(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.kill()
            self._process.join()
            self._pipe.close()
        self._process = None


def _verdict(verdict: str, stage: str) -> str:
    """What ends in the oracle, or while a case is made or judged with its help, is none of ours."""
    return "oracle failed" if stage in ("make", "oracle", "compare") else verdict


def try_job(worker: Worker, job: Job) -> Outcome:
    """Return the outcome of `job`, confirmed by a fresh process where it is the end of one, with its case."""
    outcome = worker.run(job)
    if outcome.verdict not in ("signal", "hang", "oracle failed") or job.mode != "judge":
        return outcome
    case = job.case or worker.run(replace(job, mode="make")).case
    if case is None:
        return outcome
    if outcome.verdict == "oracle failed":
        alone = worker.run(replace(job, case=case, mode="alone"))
        # What takes ONNX Runtime for ever may take the fallback, which it is, as long.
        return outcome if alone.verdict == "hang" else replace(alone, case=case, note=case.note)
    again = worker.run(replace(job, case=case), 2 * SECONDS)
    described = worker.run(replace(job, case=case, mode="make"))
    return replace(again, case=case, where=again.where or described.where, note=case.note)


def try_all(answer: Answer, jobs: Iterable[Job], count: int, report: Callable[[Outcome], None]) -> None:
    """Try `jobs` by `count` workers; `report` gets each outcome, one at a time."""
    left: Iterator[Job] = iter(jobs)
    lock, seen, outcomes = threading.Lock(), set[str](), queue.Queue[Outcome | Exception | None]()
    threads = [
        threading.Thread(target=partial(_drain, Worker(answer), left, lock, seen, outcomes), daemon=True)
        for _ in range(count)
    ]
    for thread in threads:
        thread.start()
    running = count
    while running:
        outcome = outcomes.get()
        if outcome is None:
            running -= 1
        elif isinstance(outcome, Exception):
            raise outcome
        else:
            report(outcome)


def _drain(
    worker: Worker, jobs: Iterator[Job], lock: threading.Lock, seen: set[str],
    outcomes: queue.Queue[Outcome | Exception | None],
) -> None:  # fmt: skip
    """Try jobs until none is left; findings are made smaller the first time that one of their kind is `seen`."""
    try:
        while True:
            with lock:
                job = next(jobs, None)
            if job is None:
                return
            outcome = try_job(worker, job)
            mark = signature(outcome)
            if outcome.case is not None and mark not in seen:
                seen.add(mark)
                # Each step towards a smaller hang would take as long as the hang.
                outcome = outcome if outcome.verdict == "hang" else _smallest(worker, job, outcome)
            outcomes.put(outcome)
    except Exception as error:  # the thread's end is the run's
        outcomes.put(error)
    finally:
        worker.stop()
        outcomes.put(None)


def _smallest(worker: Worker, job: Job, outcome: Outcome) -> Outcome:
    """Return `outcome` with its case made as small as it can be."""
    small = by_worker(outcome, worker.run, job)
    described = small if small.where else worker.run(replace(job, case=small.case, mode="make"))
    return replace(small, where=described.where, note=outcome.note, seconds=outcome.seconds)
