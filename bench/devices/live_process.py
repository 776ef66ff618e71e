"""A process that has a model of its own: divided among devices, or whole and bound to one CPU."""

from __future__ import annotations

import itertools
import multiprocessing
import os
import time
from collections.abc import Mapping, Sequence
from multiprocessing.connection import Connection
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np

from bench.remote import EngineError

_DEADLINE_S = 900.0
"""For compiling; to run takes seconds."""
_WARM_UP = 8
"""Requests of a stream before it is timed: twice as many as may be under way in two stages."""
Arrays = Mapping[str, np.ndarray]


class LiveProcess:
    """Use as a context manager."""

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, tuple[int, ...]],
        effort: str,
        inputs: Sequence[Arrays],
        *,
        targets: Sequence[str] = (),
        cpu: int | None = None,
    ) -> None:
        """Either `targets`, of devices, or a `cpu` is given."""
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        model = _LiveModel(path, shapes, effort, inputs, targets=targets, cpu=cpu)
        self._process = context.Process(target=_serve, args=(theirs, model), daemon=True)
        self._process.start()
        theirs.close()

    def __enter__(self) -> LiveProcess:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.join()

    def ask(self, method: str, *arguments: Any) -> Any:
        """Return what the method of `_LiveModel` returns there.

        Raises:
            EngineError: It raised, or its process is late or dead.
        """
        self.begin(method, *arguments)
        return self.end()

    def begin(self, method: str, *arguments: Any) -> None:
        """Have the method called; `end` waits for what it returns."""
        self._connection.send((method, arguments))

    def end(self) -> Any:
        """Return what the method that was begun returns; raises what `ask` does."""
        if not self._connection.poll(_DEADLINE_S):
            raise EngineError(f"no answer in {_DEADLINE_S:.0f} s")
        try:
            done, result = self._connection.recv()
        except EOFError as error:
            raise EngineError("the process ended") from error
        if not done:
            raise EngineError(result)
        return result


class _LiveModel:
    """What the process does."""

    def __init__(
        self,
        path: Path,
        shapes: Mapping[str, tuple[int, ...]],
        effort: str,
        inputs: Sequence[Arrays],
        *,
        targets: Sequence[str],
        cpu: int | None,
    ) -> None:
        self.path, self.shapes, self.effort, self.inputs = path, shapes, effort, inputs
        self.targets, self.cpu = targets, cpu
        self.module: Any = None

    def compile(self) -> None:
        """Compile the model, and bind the process to its CPU."""
        import fusion

        how: dict[str, Any] = {"target": list(self.targets)} if self.targets else {"threads": 1}
        self.module = fusion.compile(self.path, shapes=self.shapes, effort=self.effort, **how)
        if self.cpu is not None:
            os.sched_setaffinity(0, [self.cpu])

    def plans(self) -> tuple[dict[str, float], int]:
        """Return the milliseconds that the plans expect, and the stages of a stream."""
        plans = self.module.plans
        return {objective: plan["ms"] for objective, plan in plans.items()}, len(plans["throughput"]["stages"])

    def outputs(self) -> list[dict[str, np.ndarray]]:
        """Return the results of all inputs."""
        stream = getattr(self.module, "stream", self.module.map)
        return list(stream(self.inputs))

    def calls(self, seconds: float) -> float:
        """Return how many calls a second one caller makes."""
        inputs = itertools.cycle(self.inputs)
        self.module.run(next(inputs))
        started = time.perf_counter()
        for done in itertools.count(1):
            self.module.run(next(inputs))
            taken = time.perf_counter() - started
            if taken > seconds:
                return done / taken
        raise AssertionError

    def stream(self, seconds: float) -> float:
        """Return how many requests of a stream are answered a second, once it is under way."""
        stream = self.module.stream(itertools.cycle(self.inputs))
        for _ in range(_WARM_UP):
            next(stream)
        started = time.perf_counter()
        for done, _ in enumerate(stream, 1):
            taken = time.perf_counter() - started
            if taken > seconds:
                stream.close()
                return done / taken
        raise AssertionError


def _serve(connection: Connection, model: _LiveModel) -> None:
    while True:
        try:
            method, arguments = connection.recv()
        except EOFError:
            return
        try:
            connection.send((True, getattr(model, method)(*arguments)))
        except Exception as error:  # the parent says what it was
            connection.send((False, f"{method}: {error}"))
