"""Differences from ONNX Runtime that are permitted, each by a row of docs/limits.md."""

from __future__ import annotations

import re
from dataclasses import dataclass

import ml_dtypes
import numpy as np
import onnx

from tests.fuzz.case import Case, Outcome


@dataclass(frozen=True)
class Known:
    """A permitted difference.

    Attributes:
        row: How the first cell of its row in docs/limits.md begins.
        verdict: Of the outcomes it covers.
        where, detail, note: Patterns of what they say: the operators, the message, and what was done to the case.
        odd: Whether only for cases with a number that is NaN, infinite, or too large to square.
    """

    row: str
    verdict: str
    where: str = ""
    detail: str = ""
    note: str = ""
    odd: bool = False


_UNDEFINED = "RoiAlign|NegativeLogLikelihoodLoss|SoftmaxCrossEntropyLoss|ScatterElements|Attention"

KNOWN = (
    Known("an axis, stride, dilation or other number beyond 32 bits", "refused", detail=r"F204.*\d{10}"),
    Known("a `mode`, `reduction` or the like", "refused", _UNDEFINED, "F204.*(mode|reduction)"),
    Known("`MeanVarianceNormalization` with axes", "refused", "MeanVarianceNormalization", "F204.*has not"),
    Known("`MeanVarianceNormalization` with axes", "refused", "CenterCropPad", "F204.*0 or more|F302"),
    Known("`Split` whose `num_outputs`", "refused", "Split", "num_outputs"),
    Known("`GatherND` whose indices have other batches", "refused", "GatherND", r"F204.*first \d+ axes"),
    Known("`GatherND` whose indices have other batches", "refused", "ReverseSequence", "F204.*(time|batch)_axis"),
    Known("`RotaryEmbedding` with an `interleaved`", "refused", "RotaryEmbedding", "interleaved"),
    Known("`ReduceLogSum` of integers", "refused", "ReduceLogSum", "F201: Log"),
    Known("`Constant` with unknown attributes", "refused", r"^Constant\b", "F201"),
    Known("the size of a window as a row", "refused", "Window", "F202.*must be a scalar"),
    Known("MaxRoiPool of a box with NaN", "refused", "MaxRoiPool", "F302.*box", odd=True),
    Known("a shape that the model declares", "refused", detail="F302.*(match_cast|declared|the model says)"),
    Known("`auto_pad` of a convolution with dilations", "accepted", "Conv", "ilation"),
    Known("`RNN`, `LSTM` and `GRU` of `layout` 1", "accepted", "RNN|LSTM|GRU", "layout"),
    Known("QuantizeLinear, QLinearConv, QLinearMatMul of NaN", "differs", "QuantizeLinear|QLinear", note="nan|inf"),
    Known("A pool over no axes", "accepted", "Pool", "Unsupported (pooling|kernel)|less than 3"),
    Known("LRN of other than four axes", "accepted", "LRN", r"NumDimensions\(\) == 4"),
    Known("Sin, Cos of numbers beyond 2^30", "differs", r"\b(Sin|Cos)\b", odd=True),
    Known("GridSample where a coordinate is NaN", "differs", "GridSample", odd=True),
    Known("ReduceMax, ReduceMin, MaxPool of NaN", "differs", "ReduceMax|ReduceMin|MaxPool", odd=True),
    Known("ArgMax, ArgMin of NaN", "differs", "ArgMax|ArgMin", odd=True),
    Known("TopK of NaN", "differs", "TopK", odd=True),
    Known("Hardmax of NaN", "differs", "Hardmax", odd=True),
    Known("Clip whose bound, an input, is NaN", "differs", "Clip", odd=True),
    Known("QuantizeLinear, DynamicQuantizeLinear of NaN", "differs", "QuantizeLinear", odd=True),
    Known("LayerNormalization of numbers whose sum", "differs", "LayerNormalization", "NaN or infinity", odd=True),
    Known("ReduceL1 of the lowest int64", "differs", "ReduceL1", "-9223372036854775808"),
    Known("x times a constant 0", "differs", "Celu|Swish", "NaN or infinity"),
)


def permitted(outcome: Outcome) -> Known | None:
    """Return the row that permits `outcome`, or None."""
    return next((known for known in KNOWN if _covers(known, outcome)), None)


def _covers(known: Known, outcome: Outcome) -> bool:
    patterns = ((known.where, outcome.where), (known.detail, outcome.detail), (known.note, outcome.note))
    if known.verdict != outcome.verdict or not all(re.search(pattern, text) for pattern, text in patterns):
        return False
    return not known.odd or (outcome.case is not None and any(map(_is_odd, _arrays(outcome.case))))


def _arrays(case: Case) -> list[np.ndarray]:
    weights = [onnx.numpy_helper.to_array(tensor) for tensor in case.proto().graph.initializer]
    return [array for array in (*weights, *case.inputs.values()) if isinstance(array, np.ndarray)]


def _is_odd(array: np.ndarray) -> bool:
    if array.dtype.kind != "f" and not hasattr(ml_dtypes, array.dtype.name):
        return False
    with np.errstate(all="ignore"):
        return not bool(np.isfinite(np.square(array).astype(np.float64)).all())
