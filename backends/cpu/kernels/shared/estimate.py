"""Costs of leaving a chain in several kernels."""

from __future__ import annotations

from backends.cpu.costs import L2_BYTES_PER_CYCLE, MEMORY_BYTES_PER_CYCLE
from backends.cpu.machine import Machine


def passing_cycles(elements: int, machine: Machine, threads: int) -> float:
    """Return what it takes to write float32 elements in one kernel and read them in the next."""
    share = 4 * elements / threads
    return 2 * share / (L2_BYTES_PER_CYCLE if share <= machine.l2_bytes // 2 else MEMORY_BYTES_PER_CYCLE)
