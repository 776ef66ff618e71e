"""Costs of leaving a chain in several kernels."""

from __future__ import annotations

from backends.cpu.kernels.shared.blocking import BYTES_PER_CYCLE, L2_BYTES_PER_CYCLE
from backends.cpu.machine import Machine

LAUNCH_CYCLES = 8_000
"""A kernel's start on all threads and the wait for the last, about 2.5 us."""


def passing_cycles(elements: int, machine: Machine, threads: int) -> float:
    """Return what it takes to write float32 elements in one kernel and read them in the next."""
    share = 4 * elements / threads
    return 2 * share / (L2_BYTES_PER_CYCLE if share <= machine.l2_bytes // 2 else BYTES_PER_CYCLE)
