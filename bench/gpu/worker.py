"""The process of one engine: `python -m bench.gpu.worker ENGINE FD`. It has the device for itself while it is asked."""

from __future__ import annotations

import statistics
import sys
import time
from typing import Any

import numpy as np

from bench.gpu.engines import ENGINES, Call, DeviceEngine
from bench.gpu.subjects import Subject, make
from bench.serve import serve

_LEAST_S = 0.005
"""Of the calls that are timed together, so that what a wait takes does not count."""
_MOST = 4096
_COPY_BYTES = 1 << 30
"""Of the array whose copy is timed: more than the caches of any device hold."""


class DeviceServer:
    """What the parent asks for."""

    def __init__(self, engine: DeviceEngine) -> None:
        self._engine = engine
        self._run: Call | None = None

    def load(self, subject: Subject) -> float:
        """Load a subject, and return the seconds until its first result was there; imports are not counted."""
        import torch

        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
        made = make(subject)
        self._inputs = [torch.from_numpy(each).cuda() for each in made.draw(0)]
        torch.cuda.synchronize()
        started = time.perf_counter()
        self._run = self._engine(subject, made, self._inputs)
        self._run()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def outputs(self) -> list[np.ndarray]:
        """Return what the engine makes of the inputs."""
        import torch

        return [torch.from_dlpack(each).cpu().numpy() for each in self._call()]

    def measure(self, seconds: float) -> float:
        """Return the median seconds of a call over one round: of many that follow each other, for the device is to be
        busy all the time."""
        import torch

        self._call()
        torch.cuda.synchronize()
        many, times = self._many(), list[float]()
        deadline = time.perf_counter() + seconds
        while not times or time.perf_counter() < deadline:
            times.append(self._timed(many) / many)
        return statistics.median(times)

    def copy_gbs(self, seconds: float) -> float:
        """Return the bytes that a copy on the device reads and writes, in 1e9 a second: what its memory allows."""
        import torch

        source = torch.empty(_COPY_BYTES, dtype=torch.uint8, device="cuda")
        target = torch.empty_like(source)

        def copy() -> list[Any]:
            return [target.copy_(source)]

        self._run = copy
        return 2 * _COPY_BYTES / self.measure(seconds) / 1e9

    def _many(self) -> int:
        many = 1
        while many < _MOST and self._timed(many) < _LEAST_S:
            many *= 2
        return many

    def _timed(self, many: int) -> float:
        import torch

        started = time.perf_counter()
        for _ in range(many):
            self._call()
        torch.cuda.synchronize()
        return time.perf_counter() - started

    def _call(self) -> Any:
        assert self._run is not None, "load comes first"
        return self._run()


def main() -> None:
    """Serve the engine named on the command line over the inherited socket."""
    name, descriptor = sys.argv[1:]
    serve(int(descriptor), lambda: DeviceServer(ENGINES[name]))


if __name__ == "__main__":
    main()
