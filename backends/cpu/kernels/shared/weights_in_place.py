"""What reading weights takes that no compilation has packed: where they lie, k by channels, or in copies of panels.

A register tile reads a panel: `vectors` vectors of each row of the weights. Rows whose distance has a large power of
two in it share the sets of a cache, which then holds less of a panel than it has bytes:

    of rows 4096 bytes apart, a panel two vectors wide lies in 128 bytes of every 4096 places that L1 and L2 have
"""

from __future__ import annotations

from math import gcd, inf

from backends.cpu.costs import (
    CACHE_LINE,
    L2_BYTES_PER_CYCLE,
    L2_STRIDED_BYTES_PER_CYCLE,
    MEMORY_BYTES_PER_CYCLE,
    SPLIT_CYCLES,
    STRIDED_ROW_CYCLES,
)
from backends.cpu.kernels.shared.extents import Extents, vectors_are_lines
from backends.cpu.machine import Machine


def first_pass(extents: Extents, row: int, machine: Machine) -> float:
    """Return the bytes a cycle that a core gets of weights which it reads for the first time, in panels that have `row`
    bytes of each row."""
    pitch = extents.weight_pitch or 0
    return _rate(row, pitch) if extents.outer * extents.depth * pitch >= machine.l2_bytes else MEMORY_BYTES_PER_CYCLE


def other_passes(extents: Extents, row: int, machine: Machine) -> float:
    """Return the bytes a cycle that tiles of rows after the first get of such panels; inf where L1 keeps them, or they
    have been packed while compiling."""
    pitch = extents.weight_pitch
    if pitch is None:
        return inf
    panel, share = row * extents.steps, _share(row, pitch, machine)
    if panel <= share * machine.l1_bytes / 2:
        return inf
    if max(panel / share, extents.depth * pitch) <= machine.l2_bytes / 2:
        return L2_STRIDED_BYTES_PER_CYCLE if row < pitch else L2_BYTES_PER_CYCLE
    return _rate(row, pitch)


def split_cycles(extents: Extents, machine: Machine) -> float:
    """Return the cycles that a tile of rows after the first waits for vectors that lie in two lines each, as those do
    of rows that begin inside of lines, where L1 does not keep all of them; known of vectors as long as a line."""
    pitch = extents.weight_pitch or 0
    if not vectors_are_lines(extents.lanes) or extents.depth * pitch <= machine.l1_bytes / 2:
        return 0.0
    return SPLIT_CYCLES * extents.multiplied_vectors * extents.steps * (1 - gcd(pitch, CACHE_LINE) / CACHE_LINE)


def shares_sets(row: int, steps: int, pitch: int, machine: Machine) -> bool:
    """Return whether a panel with `row` bytes of so many rows, `pitch` apart, leaves L1 as the rows share its sets."""
    return row * steps > _share(row, pitch, machine) * machine.l1_bytes / 2 and row * steps <= machine.l1_bytes / 2


def _rate(row: int, pitch: int) -> float:
    """Return the bytes a cycle from beyond L2 of rows `pitch` apart."""
    return min(MEMORY_BYTES_PER_CYCLE, row / STRIDED_ROW_CYCLES) if row < pitch else MEMORY_BYTES_PER_CYCLE


def _share(row: int, pitch: int, machine: Machine) -> float:
    """Return the share of a cache in which rows of so many bytes, `pitch` apart, may lie."""
    return min(1.0, -(-row // CACHE_LINE) * CACHE_LINE / gcd(pitch, machine.l1_span)) if pitch > row else 1.0
