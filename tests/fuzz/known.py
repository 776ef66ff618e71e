"""Differences from ONNX Runtime that are permitted, each by a row of docs/limits.md."""

from __future__ import annotations

import re
from dataclasses import dataclass

from tests.fuzz.case import Outcome


@dataclass(frozen=True)
class Known:
    """A permitted difference.

    Attributes:
        row: How the first cell of its row in docs/limits.md begins.
        verdict: Of the outcomes it covers.
        where, detail, note: Patterns of what they say: the operators, the message, and what was done to the case.
    """

    row: str
    verdict: str
    where: str = ""
    detail: str = ""
    note: str = ""


_UNDEFINED = "RoiAlign|NegativeLogLikelihoodLoss|SoftmaxCrossEntropyLoss|ScatterElements|Attention"

KNOWN = (
    Known("an axis, stride, dilation or other number beyond 32 bits", "refused", detail=r"F204.*\d{10}"),
    Known("a `mode`, `reduction` or the like", "refused", _UNDEFINED, "F204.*(mode|reduction)"),
    Known("`MeanVarianceNormalization` with axes", "refused", "MeanVarianceNormalization|CenterCropPad", "F204"),
    Known("`Split` whose `num_outputs`", "refused", "Split", "num_outputs"),
    Known("`GatherND` whose indices have other batches", "refused", "GatherND|ReverseSequence", "F204"),
    Known("`RotaryEmbedding` with an `interleaved`", "refused", "RotaryEmbedding", "interleaved"),
    Known("`ReduceLogSum` of integers", "refused", "ReduceLogSum", "F201: Log"),
    Known("`Constant` with unknown attributes", "refused", r"^Constant\b", "F201"),
    Known("a shape that the model declares", "refused", detail="F302: (a size is not the declared|.*match_cast error)"),
    Known("MaxRoiPool of a box with NaN", "refused", "MaxRoiPool", "F302", "nan|inf|e[+]"),
    Known("`auto_pad` of a convolution with dilations", "accepted", "Conv", "ilation"),
    Known("`RNN`, `LSTM` and `GRU` of `layout` 1", "accepted", "RNN|LSTM|GRU", "layout"),
    Known("QuantizeLinear, QLinearConv, QLinearMatMul of NaN", "differs", "QuantizeLinear|QLinear", note="nan|inf"),
    Known("GridSample where a coordinate is NaN", "differs", "GridSample", note=r"nan|inf|e[+]"),
)


def permitted(outcome: Outcome) -> Known | None:
    """Return the row that permits `outcome`, or None."""
    return next((known for known in KNOWN if _covers(known, outcome)), None)


def _covers(known: Known, outcome: Outcome) -> bool:
    patterns = ((known.where, outcome.where), (known.detail, outcome.detail), (known.note, outcome.note))
    return known.verdict == outcome.verdict and all(re.search(pattern, text) for pattern, text in patterns)
