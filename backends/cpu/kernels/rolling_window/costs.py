"""By how much a window with its projection has to be estimated the faster in one kernel."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import ZEN4, Cost

PROJECTION_MARGIN: Annotated[
    float,
    Cost(
        "times",
        "at 1.24 (112x112x96, stride 2) and 1.37 (56x56x144) one kernel took 2 to 3% less, at 1.06 to 1.16 from 1% "
        "less to 4% more (28x28x192, 56x56x128)",
        ZEN4,
    ),
] = 1.2
"""How many times as fast a window and the projection behind it in one kernel have to be by estimate."""
