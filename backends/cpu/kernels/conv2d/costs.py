"""What convolutions alone take."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import Cost

TAP_CYCLES: Annotated[
    float,
    Cost(
        "cycles/tap of a pixel of one channel",
        "vectors of pixels, whose taps lie apart; at 3.1 to 3.4 cycles of multiply-adds saved a tap, 3x3 of 8 channels "
        "over 112x112 and 28x28 pixels and 7 of 8 over 16,000 take 0.63, 0.80 and 0.42 of the time of a direct sum",
        "two vCPUs of Zen 3",
    ),
] = 3.0
"""What it takes to add up the taps of a pixel that a product has made."""

CHANNELS_TAP_CYCLES: Annotated[
    float,
    Cost(
        "cycles/tap of a channel of a pixel",
        "times over those of a direct sum, by cycles of multiply-adds saved: 3x3 of 16 channels to 3 1.22 at 1.5, of "
        "64 to 3 0.80 at 5.9, 7 of 32 to 2 0.42 at 5.7, of 128 to 4 0.63 at 6.9",
        "two vCPUs of Zen 3",
    ),
] = 5.0
"""What it takes where the channels of a pixel, which are no vector, lie together."""
