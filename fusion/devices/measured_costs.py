"""What the kernels of a model take on a device, measured there."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from fusion.module.program import KernelProgram
from fusion.report.profile import median_of, time_calls

_RUN_S, _KERNELS_S = 0.5, 0.8
"""For whole runs in each bout, and once for single kernels."""


def measure_run(program: KernelProgram, arrays: Sequence[np.ndarray], threads: int) -> float:
    """Return the seconds of a run on `threads` threads from the calling one.

    Raises:
        ExecutionError: The model does not take these arrays.
    """
    program.library.use_threads(threads)
    memory = program.arenas.take()
    try:
        return median_of(lambda: program.run_in(memory, arrays), _RUN_S)
    finally:
        program.arenas.give(memory)


def measure_shares(program: KernelProgram, arrays: Sequence[np.ndarray], threads: int) -> dict[str, float]:
    """Return the share of a run that a call of each kernel takes, on `threads` threads from the calling one: calls that
    Python makes one by one take longer than those of a run.

    Raises:
        ExecutionError: The model does not take these arrays.
    """
    program.library.use_threads(threads)
    calls, seconds = time_calls(program, arrays, _KERNELS_S)
    by_kernel = defaultdict[str, list[float]](list)
    for call, took in zip(calls, seconds, strict=True):
        by_kernel[call.kernel].append(took / sum(seconds))
    return {name: statistics.mean(shares) for name, shares in by_kernel.items()}
