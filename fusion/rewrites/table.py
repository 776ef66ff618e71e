"""All rules, in the order in which they are tried on a value."""

from __future__ import annotations

from fusion.rewrites.rule import Rule
from fusion.rewrites.rules.activations import GELU, GELU_TANH, LOG_SOFTMAX, MISH_GATE, SILU, SOFTMAX
from fusion.rewrites.rules.broadcasts import ALL_OR_NONE, REPEAT_LATE
from fusion.rewrites.rules.heads import SHARED_HEADS
from fusion.rewrites.rules.normalizations import GROUP_NORM, LAYER_NORM, RMS_NORM
from fusion.rewrites.rules.numbers import BATCH_NORM, IDENTITY, RECIPROCAL, SQUARE, UNROUNDED_NORM
from fusion.rewrites.rules.pads import PAD
from fusion.rewrites.rules.parallel import PARALLEL_SUM
from fusion.rewrites.rules.products import SCALES_OF_BOTH
from fusion.rewrites.rules.scales import SCALE_BEHIND, SCALE_IN_FRONT, SHIFT_BEHIND, SHIFT_IN_FRONT, SHIFT_OF_NORM
from fusion.rewrites.rules.sums import STACKED_SUM
from fusion.rewrites.rules.takes import CAST_BEHIND, IN_ORDER, ROWS_FIRST
from fusion.rewrites.rules.windows import DILATED_CONV

RULES: tuple[Rule, ...] = (
    GELU,
    GELU_TANH,
    SILU,
    MISH_GATE,
    SOFTMAX,
    LOG_SOFTMAX,
    LAYER_NORM,
    RMS_NORM,
    GROUP_NORM,
    UNROUNDED_NORM,
    BATCH_NORM,
    IDENTITY,
    IN_ORDER,
    CAST_BEHIND,
    ROWS_FIRST,
    ALL_OR_NONE,
    REPEAT_LATE,
    PAD,
    STACKED_SUM,
    SHARED_HEADS,
    PARALLEL_SUM,
    SCALES_OF_BOTH,
    SCALE_BEHIND,
    SHIFT_OF_NORM,
    SHIFT_BEHIND,
    SCALE_IN_FRONT,
    SHIFT_IN_FRONT,
    RECIPROCAL,
    SQUARE,
    DILATED_CONV,
)
