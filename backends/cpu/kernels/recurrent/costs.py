"""Costs of a step of a recurrence, which no other family adds up."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import NOT_TOLD, ZEN4, Cost

L3_BYTES_PER_CYCLE: Annotated[
    float, Cost("bytes/cycle", "a step of a recurrence of one sequence: 4 MiB of weights take 66 us", ZEN4)
] = 18.0
"""What one core loads from L3 of weights that it reads again and again."""

L2_SHARE: Annotated[
    float, Cost("share of L2", "a recurrence: 256 KiB of weights take 2.5 us a step, 1 MiB comes from L3", ZEN4)
] = 0.8
"""The part of L2 that weights which are read again and again may fill and stay in it."""

GATE_VECTOR_CYCLES: Annotated[int, Cost("cycles/vector", NOT_TOLD, ZEN4)] = 20
"""The time for a vector of one gate: its activation is a polynomial."""

UNHIDDEN_STREAM: Annotated[float, Cost("share", NOT_TOLD, ZEN4)] = 0.25
"""The part that is not hidden of the shorter one of a step's products and the stream of its weights, which overlap."""
