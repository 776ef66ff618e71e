"""Costs of windows over planes, which no other family adds up."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import NOT_TOLD, VENDORS, ZEN4, Cost

UNALIGNED_LOAD_CYCLES: Annotated[
    float, Cost("cycles/vector", "most vectors at a multiple of 4 bytes lie in two cache lines", VENDORS)
] = 1.5
"""The time of a load of a vector that lies anywhere."""

PLANAR_TILE_CYCLES: Annotated[int, Cost("cycles", NOT_TOLD, ZEN4)] = 12
"""The time to enter and leave a register tile over planes."""

UNHIDDEN_LOADS: Annotated[float, Cost("share", NOT_TOLD, ZEN4)] = 0.125
"""The part that is not hidden of the shorter one of a plane tile's operations and its loads, which overlap."""
