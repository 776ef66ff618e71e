"""By how much two convolutions have to be estimated the faster in one kernel."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import ZEN4, Cost

CONV_CHAIN_MARGIN: Annotated[
    float,
    Cost(
        "times",
        "at 1.21 to 1.70 times as fast by the estimate (first layers of 224 to 640 pixels) one kernel took 1 to 10% "
        "less, at 1.04 to 1.17 (Chimera's C1, C5, a ResNet's 1x1 and 3x3 of stride 2) from 1% less to 3% more",
        ZEN4,
    ),
] = 1.23
"""How many times as fast two convolutions in one kernel have to be by estimate."""
