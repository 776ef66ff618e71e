"""What the kernels of a model take on a device, measured there."""

from __future__ import annotations

import statistics
import time
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fusion.module.program import KernelProgram, RunMemory
from fusion.report.profile import rounds_of, time_calls

_SECONDS = 1.0
"""For whole runs, and again for single kernels."""


def measure_kernels(program: KernelProgram, arrays: Sequence[np.ndarray], threads: int) -> dict[str, float]:
    """Return the seconds of a call of each kernel, on `threads` threads from the calling one.

    Calls that Python makes one by one take longer than those of a run, of which they are given their share.

    Raises:
        ExecutionError: The model does not take these arrays.
    """
    program.library.use_threads(threads)
    memory = program.arenas.take()
    try:
        whole = statistics.median(took for (took,) in rounds_of(lambda: [_timed(program, memory, arrays)], _SECONDS))
    finally:
        program.arenas.give(memory)
    calls, seconds = time_calls(program, arrays, _SECONDS)
    share = whole / sum(seconds) if calls else 0.0
    by_kernel = defaultdict[str, list[float]](list)
    for call, took in zip(calls, seconds, strict=True):
        by_kernel[call.kernel].append(took * share)
    return {name: statistics.mean(times) for name, times in by_kernel.items()}


def _timed(program: KernelProgram, memory: RunMemory, arrays: Sequence[np.ndarray]) -> float:
    started = time.perf_counter()
    program.run_in(memory, arrays)
    return time.perf_counter() - started
