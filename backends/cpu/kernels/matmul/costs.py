"""Costs of matmuls whose rows the kernel makes, which no other family adds up."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import NOT_TOLD, ZEN4, Cost

ROW_BLOCK_CYCLES: Annotated[int, Cost("cycles", NOT_TOLD, ZEN4)] = 20
"""The time to begin a block of rows, and the loops in it."""

LAYERS_MARGIN: Annotated[
    float,
    Cost(
        "times",
        "at 4 to 11% one kernel took from 15% less (64x240x480) to as long; between MBConv blocks (100 rows, 480 to "
        "80 to 480) more: efficientnet_b0_hard 2.44 ms with, 2.38 without",
        ZEN4,
    ),
] = 1.15
"""How many times as fast layers of matmuls in one kernel have to be by estimate."""
