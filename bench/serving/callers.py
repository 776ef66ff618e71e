"""Several threads that call one engine: in its process, what they do together and whether they get it right."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

import numpy as np

from bench.peers.engine import Arrays, Runner

_CHECKED_TURNS = 2


@dataclass(frozen=True)
class Served:
    """What callers at a time did.

    Attributes:
        per_s: Runs a second, of all of them.
        equal: Whether each run returned the same bits as one alone.
    """

    per_s: float
    equal: bool


def serve(run: Runner, inputs: Sequence[Arrays], callers: int, seconds: float) -> Served:
    """Let so many threads call `run` on `inputs` in turn, first to compare the outputs, then for about `seconds`."""
    # Copies: an engine may hand out memory that its next run overwrites.
    alone = [{name: value.copy() for name, value in run(arrays).items()} for arrays in inputs]

    def check(caller: int) -> bool:
        turns = [(caller + turn) % len(inputs) for turn in range(_CHECKED_TURNS * len(inputs))]
        return all(_equal(run(inputs[turn]), alone[turn]) for turn in turns)

    def count(caller: int) -> int:
        done, deadline = 0, time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            run(inputs[(caller + done) % len(inputs)])
            done += 1
        return done

    equal, _ = _together(check, callers)
    done, taken = _together(count, callers)
    return Served(sum(done) / taken, all(equal))


def _together(work: Callable[[int], int], callers: int) -> tuple[list[int], float]:
    """Return what `work` returned to each thread, which begin together, and the seconds until the last one ended."""
    ready = Barrier(callers + 1)

    def begin(caller: int) -> int:
        ready.wait()
        return work(caller)

    with ThreadPoolExecutor(callers) as pool:
        results = [pool.submit(begin, caller) for caller in range(callers)]
        ready.wait()
        started = time.perf_counter()
        found = [result.result() for result in results]
        return found, time.perf_counter() - started


def _equal(outputs: Arrays, expected: Arrays) -> bool:
    return all(np.array_equal(value, expected[name], equal_nan=True) for name, value in outputs.items())


def latencies(run: Runner, inputs: Arrays, seconds: float) -> list[float]:
    """Return the seconds of each call in a round of about `seconds`."""
    run(inputs)
    times: list[float] = []
    deadline = time.perf_counter() + seconds
    while not times or time.perf_counter() < deadline:
        started = time.perf_counter()
        run(inputs)
        times.append(time.perf_counter() - started)
    return times
