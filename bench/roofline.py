"""The machine's own limits, measured: how fast all threads can multiply-add, and how fast they can copy memory."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import tvm
from tvm.script import tirx as T

from fusion import context
from fusion.module.threads import use_threads

_REPEATS = 9
# 2 units x 4 cycles of latency need 8 independent accumulators; half the register file leaves room and hides the loop.
_ACCUMULATORS = 12
_STEPS = 200_000
# Far larger than any cache this side of stacked ones, small enough for a laptop.
_COPY_BYTES = 256 << 20


@dataclass(frozen=True)
class Roofline:
    """The limits of this machine with `threads` threads.

    Attributes:
        gflops: float32 multiply-adds kept in registers, two operations each, in 1e9 per second.
        gbps: Bytes read plus bytes written while copying a large array, in 1e9 per second.
    """

    threads: int
    gflops: float
    gbps: float

    def as_dict(self) -> dict[str, float]:
        """Return the fields by name."""
        return dataclasses.asdict(self)


def measure(threads: int) -> Roofline:
    """Return the limits of this machine, in about a second."""
    return Roofline(threads, _fma_gflops(threads), _copy_gbps(threads))


def _best_s(call: Callable[[], object]) -> float:
    """Return the median seconds of the faster half of the calls: a limit is what the machine can do undisturbed."""
    times = []
    for _ in range(_REPEATS):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(sorted(times)[: _REPEATS // 2 + 1])


def _fma_gflops(threads: int) -> float:
    ctx = context.resolve("llvm", threads=threads)
    lanes = ctx.machine.vector_lanes
    module = tvm.compile(tvm.IRModule({"main": _fma_kernel(threads, lanes)}), target=ctx.target)
    data = tvm.runtime.tensor(np.zeros(threads * _ACCUMULATORS * lanes, np.float32))
    use_threads(threads)
    seconds = _best_s(lambda: module["main"](data))
    return 2 * threads * _ACCUMULATORS * lanes * _STEPS / seconds / 1e9


def _fma_kernel(threads: int, lanes: int) -> tvm.tirx.PrimFunc:
    """Return a kernel in which each thread updates _ACCUMULATORS vector registers _STEPS times: x = x * a + b."""
    width = _ACCUMULATORS * lanes

    @T.prim_func
    def main(data: T.Buffer((threads * width,), "float32")):  # type: ignore[no-untyped-def, valid-type]
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

    return main.with_attr("global_symbol", "main")


def _copy_gbps(threads: int) -> float:
    source = np.ones(_COPY_BYTES // 4, np.float32)
    target = np.empty_like(source)
    target[:] = 0
    parts = list(zip(np.array_split(target, threads), np.array_split(source, threads), strict=True))
    with ThreadPoolExecutor(threads) as pool:
        # numpy releases the interpreter lock while it copies.
        seconds = _best_s(lambda: list(pool.map(lambda part: np.copyto(*part), parts)))
    return 2 * _COPY_BYTES / seconds / 1e9
