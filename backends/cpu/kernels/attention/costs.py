"""Costs of a softmax between products and of transposed operands, which no other family adds up."""

from __future__ import annotations

from typing import Annotated

from backends.cpu.costs import NOT_TOLD, ZEN4, Cost

SOFTMAX_VECTOR_CYCLES: Annotated[int, Cost("cycles/vector", "17 cycles a vector of scores in L1", ZEN4)] = 17
"""The time that one core takes for a vector of a softmax."""

SOFTMAX_ROW_CYCLES: Annotated[int, Cost("cycles/row", NOT_TOLD, ZEN4)] = 100
"""The time for a row's maximum and sum across the lanes, and for the exponential that scales what was summed before."""

SOFTMAX_L2_CYCLES: Annotated[int, Cost("cycles/vector", NOT_TOLD, ZEN4)] = 4
"""The time that a vector of a softmax takes longer where scores and weights of a block do not fit L1."""

SHARED_SETS_ROW_CYCLES: Annotated[
    float,
    Cost(
        "cycles/row",
        "the first product of 8 of 512x64x512x64, six rows a pass: 2.1 times what the second takes, as many operations",
        "two vCPUs of Zen 3",
    ),
] = 13.0
"""The time until a part of a row of keys is there, from L2, where L1 has too few sets to keep or fetch it."""

DOT_FOLD_CYCLES: Annotated[int, Cost("cycles/vector", NOT_TOLD, "two vCPUs of Zen 3")] = 14
"""The time that adding across the lanes of a vector's scores takes, each of which is summed in a vector of its own."""

TURN_CYCLES: Annotated[float, Cost("cycles/element", NOT_TOLD, ZEN4)] = 0.7
"""The time that one core takes for an element that a task transposes on its way into L2."""

TRANSPOSE_CYCLES: Annotated[
    float,
    Cost(
        "cycles/element",
        "with the 192 heads of 49x32 of swin_t turned inside, it took 56.3 ms, not 55.8; bert_base and vit_s, of 12 "
        "and 6 larger heads, were 0.1% and 0.3% faster",
        ZEN4,
    ),
] = 0.55
"""The time that one core takes for an element of a transpose in a kernel of its own."""
