"""The process of a model of its own, divided among devices, or whole and bound to one CPU:
`python -m bench.devices.live_model FD`, driven by `bench.remote`."""

from __future__ import annotations

import itertools
import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from bench.serve import serve

_WARM_UP = 8
"""Requests of a stream before it is timed: twice as many as may be under way in two stages."""
Arrays = Mapping[str, np.ndarray]


class LiveModel:
    """The requests that the process answers; each method is one."""

    def __init__(self) -> None:
        self.module: Any = None
        self.inputs: Sequence[Arrays] = ()

    def compile(
        self, path: Path, shapes: Mapping[str, tuple[int, ...]], effort: str, where: Sequence[str] | int
    ) -> None:
        """Compile the model for devices, or for one CPU, which the process is bound to."""
        import fusion

        how: dict[str, Any] = {"threads": 1} if isinstance(where, int) else {"target": list(where)}
        self.module = fusion.compile(path, shapes=shapes, effort=effort, **how)
        if isinstance(where, int):
            os.sched_setaffinity(0, [where])

    def take(self, inputs: Sequence[Arrays]) -> None:
        """Have all that follows run on these, in turn."""
        self.inputs = inputs

    def plans(self) -> tuple[dict[str, float], str]:
        """Return the milliseconds that the plans expect, and what a stream runs on."""
        plans = self.module.plans
        stages = plans["throughput"]["stages"]
        kind = "replicas" if stages[-1]["pipeline"] else "stages"
        return {objective: plan["ms"] for objective, plan in plans.items()}, f"{len(stages)} {kind}"

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
        """Return how many requests of a stream are answered a second, once it is under way: a multiple of its stages is
        counted, as replicas answer together, and a count that begins behind all of them would end at the first."""
        stages = len(self.module.plans["throughput"]["stages"])
        stream = self.module.stream(itertools.cycle(self.inputs))
        for _ in range(_WARM_UP):
            next(stream)
        started = time.perf_counter()
        for done, _ in enumerate(stream, 1):
            taken = time.perf_counter() - started
            if taken > seconds and done % stages == 0:
                stream.close()
                return done / taken
        raise AssertionError


def main() -> None:
    """Serve over the inherited socket."""
    serve(int(sys.argv[1]), LiveModel)


if __name__ == "__main__":
    main()
