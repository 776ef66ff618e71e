"""What a CPU can do at most: from data sheets, and measured on this one."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import tvm
from tvm.script import tirx as T

from backends.backend import Load
from backends.cpu.costs import CLOCK_GHZ, L2_BYTES_PER_CYCLE, MEMORY_BYTES_PER_CYCLE
from backends.cpu.machine import Machine
from backends.machine_limits import Level, MachineLimits


def nominal_limits(machine: Machine, threads: int) -> MachineLimits:
    """Return the limits of `threads` cores, each with two vector units, at `CLOCK_GHZ`."""
    cycles = threads * CLOCK_GHZ
    vector_bytes = 4.0 * machine.vector_lanes
    caches = [
        Level("L1", machine.l1_bytes * threads, 2 * vector_bytes * cycles),
        Level("L2", machine.l2_bytes * threads, L2_BYTES_PER_CYCLE * cycles),
        Level("L3", machine.l3_bytes, MEMORY_BYTES_PER_CYCLE * cycles),
    ]
    known = tuple(level for level in caches if level.bytes)
    return MachineLimits(
        threads, 2 * 2 * machine.vector_lanes * cycles, (*known, Level("memory", 0, MEMORY_BYTES_PER_CYCLE * cycles))
    )


_STEPS = 50_000
_ACCUMULATORS = 12
"""Independent chains: an FMA takes 4 cycles and two start in each, so 8 are needed; 16 registers leave room for 12."""
_MEMORY_BYTES = 192 << 20
"""Three arrays of 64 MiB, beyond any cache."""
_LEVEL_BYTES = 512 << 20
"""What a measurement of a cache moves in all."""
_REPEATS = 9


def measure_limits(machine: Machine, threads: int, load: Load) -> MachineLimits:
    """Return the limits of this machine; takes about two seconds."""
    lanes = machine.vector_lanes
    triads = _triads(machine, threads)
    kernels = {triad.name: triad.kernel(threads, lanes) for triad in triads}
    library = load({"fma": _fma_kernel(threads, lanes), **kernels})
    library.use_threads(threads)
    registers = tvm.runtime.tensor(np.zeros(threads * _ACCUMULATORS * lanes, np.float32))
    fma_s = _best_s(lambda: library.functions["fma"](registers))
    flops = 2 * threads * _ACCUMULATORS * lanes * _STEPS
    levels = tuple(_measure(triad, library.functions, threads) for triad in triads)
    return MachineLimits(threads, flops / fma_s / 1e9, levels)


def _triads(machine: Machine, threads: int) -> list[_Triad]:
    """Return one measurement for each level the machine has."""
    caches = [("L1", machine.l1_bytes * threads), ("L2", machine.l2_bytes * threads), ("L3", machine.l3_bytes)]
    known = [_Triad(name, size, size // 2) for name, size in caches if size]
    return [*known, _Triad("memory", 0, _MEMORY_BYTES)]


def _measure(triad: _Triad, library: Mapping[str, Any], threads: int) -> Level:
    count = triad.steps(threads, 1) * threads
    arrays = [tvm.runtime.tensor(np.full(count, value, np.float32)) for value in (0, 1, 2)]
    seconds = _best_s(lambda: library[triad.name](*arrays))
    return Level(triad.name, triad.capacity, 3 * 4 * count * triad.sweeps / seconds / 1e9)


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


@dataclass(frozen=True)
class _Triad:
    """a = b * s + c on three arrays of together `footprint` bytes, as often as makes a measurable time."""

    name: str
    capacity: int
    footprint: int

    @property
    def sweeps(self) -> int:
        return max(1, _LEVEL_BYTES // self.footprint)

    def steps(self, threads: int, lanes: int) -> int:
        """Return how many vectors of `lanes` a thread has of each array, a multiple of 64 floats in all."""
        return self.footprint // 3 // 4 // threads // 64 * 64 // lanes

    def kernel(self, threads: int, lanes: int) -> tvm.tirx.PrimFunc:
        """Return the kernel; every sweep has another s, so that none can be left out."""
        steps, sweeps = self.steps(threads, lanes), self.sweeps
        count = threads * steps * lanes

        @T.prim_func  # type: ignore[untyped-decorator]
        def triad(  # type: ignore[no-untyped-def]
            a: T.Buffer((count,), "float32"),  # type: ignore[valid-type]
            b: T.Buffer((count,), "float32"),  # type: ignore[valid-type]
            c: T.Buffer((count,), "float32"),  # type: ignore[valid-type]
        ):
            for thread in T.parallel(threads):
                for sweep in T.serial(sweeps):
                    for step in T.serial(steps):
                        for v in T.vectorized(lanes):
                            at = (thread * steps + step) * lanes + v
                            a[at] = b[at] * T.Cast("float32", sweep) + c[at]

        return triad.with_attr("global_symbol", self.name)
