"""Measures the `MachineLimits` of this machine, once in a process."""

from __future__ import annotations

import functools

from backends.machine_limits import MachineLimits
from fusion import context
from fusion.module.kernel_library import KernelLibrary


@functools.cache
def measure_limits(threads: int) -> MachineLimits:
    """Return the limits of this machine; takes about two seconds the first time."""
    compiler = context.resolve(threads=threads).compiler
    return compiler.measure_limits(KernelLibrary(compiler).load)
