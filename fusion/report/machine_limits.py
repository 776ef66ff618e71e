"""What this machine can do at most: the roof of the roofline model (Williams, Waterman, Patterson 2009)."""

from __future__ import annotations

import functools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import tvm
from tvm.script import tirx as T

from fusion import context
from fusion.module.threads import use_threads

_STEPS = 50_000
_ACCUMULATORS = 12
"""Independent chains: an FMA takes 4 cycles and two start in each, so 8 are needed; 16 registers leave room for 12."""
_TRIAD_FLOATS = 1 << 24
"""64 MiB per array, beyond any cache."""
_REPEATS = 9


@dataclass(frozen=True)
class MachineLimits:
    """Limits with `threads` threads.

    Attributes:
        peak_gflops: float32 multiply-adds on registers, two operations each, in 1e9 per second.
        bandwidth_gbs: Bytes read and written by a = b * s + c on arrays beyond the caches, in 1e9 per second.
    """

    threads: int
    peak_gflops: float
    bandwidth_gbs: float

    def attainable_s(self, flops: float, bytes_moved: float) -> float:
        """Return the least seconds in which `flops` operations on `bytes_moved` bytes can be done."""
        return max(flops / (self.peak_gflops * 1e9), bytes_moved / (self.bandwidth_gbs * 1e9))


@functools.cache
def measure_limits(threads: int) -> MachineLimits:
    """Return the limits of this machine; takes about a second the first time."""
    ctx = context.resolve("llvm", threads=threads)
    lanes = ctx.machine.vector_lanes
    mod = tvm.IRModule({"fma": _fma_kernel(threads, lanes), "triad": _triad_kernel(threads, lanes)})
    library = tvm.compile(mod, target=ctx.target)
    use_threads(threads)
    registers = tvm.runtime.tensor(np.zeros(threads * _ACCUMULATORS * lanes, np.float32))
    fma_s = _best_s(lambda: library["fma"](registers))
    arrays = [tvm.runtime.tensor(np.full(_TRIAD_FLOATS, value, np.float32)) for value in (0, 1, 2)]
    triad_s = _best_s(lambda: library["triad"](*arrays))
    flops = 2 * threads * _ACCUMULATORS * lanes * _STEPS
    return MachineLimits(threads, flops / fma_s / 1e9, 3 * 4 * _TRIAD_FLOATS / triad_s / 1e9)


def _best_s(call: Callable[[], object]) -> float:
    """Return the median seconds of the faster half of the calls: a limit is what the machine does undisturbed."""
    call()
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(sorted(times)[: _REPEATS // 2 + 1])


def _fma_kernel(threads: int, lanes: int) -> tvm.tirx.PrimFunc:
    width = _ACCUMULATORS * lanes

    @T.prim_func  # type: ignore[untyped-decorator]
    def fma(data: T.Buffer((threads * width,), "float32")):  # type: ignore[no-untyped-def, valid-type]
        for thread in T.parallel(threads):
            acc = T.alloc_buffer((width,), "float32", scope="local")
            for r in T.unroll(_ACCUMULATORS):
                for v in T.vectorized(lanes):
                    acc[r * lanes + v] = data[thread * width + r * lanes + v]
            for _ in T.serial(_STEPS):
                for r in T.unroll(_ACCUMULATORS):
                    for v in T.vectorized(lanes):
                        acc[r * lanes + v] = acc[r * lanes + v] * T.float32(0.999) + T.float32(0.001)
            for r in T.unroll(_ACCUMULATORS):
                for v in T.vectorized(lanes):
                    data[thread * width + r * lanes + v] = acc[r * lanes + v]

    return fma.with_attr("global_symbol", "fma")


def _triad_kernel(threads: int, lanes: int) -> tvm.tirx.PrimFunc:
    steps = _TRIAD_FLOATS // threads // lanes

    @T.prim_func  # type: ignore[untyped-decorator]
    def triad(  # type: ignore[no-untyped-def]
        a: T.Buffer((_TRIAD_FLOATS,), "float32"),  # type: ignore[valid-type]
        b: T.Buffer((_TRIAD_FLOATS,), "float32"),  # type: ignore[valid-type]
        c: T.Buffer((_TRIAD_FLOATS,), "float32"),  # type: ignore[valid-type]
    ):
        for thread in T.parallel(threads):
            for step in T.serial(steps):
                for v in T.vectorized(lanes):
                    at = (thread * steps + step) * lanes + v
                    a[at] = b[at] * T.float32(0.5) + c[at]

    return triad.with_attr("global_symbol", "triad")
