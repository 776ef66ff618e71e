"""Differences from ONNX Runtime that are permitted, each by a row of docs/limits.md."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np
import onnx

from tests.fuzz.case import Case, Outcome
from tests.fuzz.engines import run_reference


@dataclass(frozen=True)
class Known:
    """A permitted difference.

    Attributes:
        row: How the first cell of its row in docs/limits.md begins.
        verdict: Of the outcomes it covers.
        where, detail, note: Patterns of what they say: the operators, the message, and what was done to the case.
        when: What holds of the cases.
    """

    row: str
    verdict: str
    where: str = ""
    detail: str = ""
    note: str = ""
    when: Callable[[Case], bool] | None = None


def _odd(case: Case) -> bool:
    """Whether one of its numbers is NaN, infinite, or too large to square."""
    return any(map(_is_odd, _arrays(case)))


def _meets_nan(case: Case) -> bool:
    """Whether one of its numbers is odd, or one that it computes is NaN."""
    return _odd(case) or any(map(_has_nan, run_reference(_with_all_results(case.proto()), case.inputs).values.values()))


def _with_all_results(model: onnx.ModelProto) -> onnx.ModelProto:
    names = [name for node in model.graph.node for name in node.output if name]
    del model.graph.output[:]
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names)
    return model


def _has_nan(value: Any) -> bool:
    floating = isinstance(value, np.ndarray) and (value.dtype.kind == "f" or hasattr(ml_dtypes, value.dtype.name))
    return floating and bool(np.isnan(value.astype(np.float32)).any())


def _arrays(case: Case) -> list[np.ndarray]:
    weights = [_array(tensor, case.files) for tensor in case.proto().graph.initializer]
    return [array for array in (*weights, *case.inputs.values()) if isinstance(array, np.ndarray)]


def _array(tensor: onnx.TensorProto, files: Mapping[str, bytes]) -> np.ndarray | None:
    """Return the values of a weight, those in a file beside the model too; None where they are not all there."""
    if not tensor.external_data:
        return onnx.numpy_helper.to_array(tensor)
    entries = {entry.key: entry.value for entry in tensor.external_data}
    inside = onnx.TensorProto(dims=tensor.dims, data_type=tensor.data_type)
    try:
        begin = int(entries.get("offset", 0))
        data = files[entries["location"]]
        inside.raw_data = data[begin : begin + int(entries.get("length", len(data)))]
        return onnx.numpy_helper.to_array(inside)
    except (KeyError, ValueError):
        return None


def _is_odd(array: np.ndarray) -> bool:
    if array.dtype.kind != "f" and not hasattr(ml_dtypes, array.dtype.name):
        return False
    with np.errstate(all="ignore"):
        return not bool(np.isfinite(np.square(array).astype(np.float64)).all())


def _beyond_int32(case: Case) -> bool:
    """Whether one of its numbers is an int64 whose low half says something else."""
    return any(array.dtype == np.int64 and bool((array != array.astype(np.int32)).any()) for array in _arrays(case))


def _beyond_float64(case: Case) -> bool:
    """Whether one of its numbers is an integer that float64 may have to round."""
    integers = [array for array in _arrays(case) if array.dtype.kind in "iu"]
    return any(bool((np.abs(array.astype(np.float64)) >= 2.0**53).any()) for array in integers)


def _has_subnormal(case: Case) -> bool:
    """Whether one of its numbers has fewer bits than its type, as it is near 0."""
    floats = [array for array in _arrays(case) if array.dtype.kind == "f"]
    return any(bool(((array != 0) & (np.abs(array) < np.finfo(array.dtype).tiny)).any()) for array in floats)


def _leaves_unsorted(case: Case) -> bool:
    """Whether a node is told not to sort."""
    return any(values.get("sorted", 1) != 1 for values in _attributes(case))


def _asks_one_query(case: Case) -> bool:
    """Whether an Attention that looks at no later keys has one query and keys of before."""
    nodes = [node for node in case.proto().graph.node if node.op_type == "Attention" and len(node.input) > 4]
    causal = any(attribute.name == "is_causal" and attribute.i for node in nodes for attribute in node.attribute)
    queries = [case.inputs.get(node.input[0]) for node in nodes]
    return causal and any(query is not None and np.shape(query)[-2] == 1 for query in queries)


def _multiplies_three(case: Case) -> bool:
    """Whether an Einsum has three operands or more, and one of its numbers is odd."""
    return _odd(case) and any(values.get("equation", b"").count(b",") > 1 for values in _attributes(case))


def _skips(most: int) -> Callable[[Case], bool]:
    """Return whether a window is padded by a rule, and its strides are longer than it by more than `most`."""
    return lambda case: any(
        values.get("auto_pad", b"").startswith(b"SAME")
        and any(stride > size + most for stride, size in zip(values["strides"], values["kernel_shape"], strict=False))
        for values in _attributes(case)
        if "strides" in values and "kernel_shape" in values
    )


def _saturates_oddly(case: Case) -> bool:
    """Whether a Cast says of saturating something other than yes and no."""
    return any(values.get("saturate", 1) not in (0, 1) for values in _attributes(case))


def _makes_half(case: Case) -> bool:
    """Whether a node is told to make half precision."""
    half = (onnx.TensorProto.FLOAT16, onnx.TensorProto.BFLOAT16)
    return any(values.get("output_datatype") in half for values in _attributes(case))


def _scatters_extremes(case: Case) -> bool:
    """Whether a node takes extremes of what it scatters, and one of its numbers is odd, or one computed is NaN."""
    return any(values.get("reduction") in (b"max", b"min") for values in _attributes(case)) and _meets_nan(case)


def _may_train(case: Case) -> bool:
    """Whether the run says to a node whether it is training."""
    return any(name in case.inputs for node in case.proto().graph.node for name in node.input[2:3])


def _forgets_the_past(case: Case) -> bool:
    """Whether an Attention is given keys of before, and not asked for all of the present ones."""
    return any(any(node.input[4:6]) and not all([*node.output, "", ""][1:3]) for node in case.proto().graph.node)


def _has_short_mask(case: Case) -> bool:
    """Whether an Attention has a mask of fewer columns than it has keys."""
    weights = {tensor.name: tuple(tensor.dims) for tensor in case.proto().graph.initializer}
    shapes = weights | {name: np.shape(value) for name, value in case.inputs.items()}
    read = [[shapes.get(name, ()) for name in node.input] for node in case.proto().graph.node if len(node.input) > 3]
    kept = [(key, mask, past[0] if past else ()) for _, key, _, mask, *past in read]
    return any(key and mask and mask[-1] < key[-2] + (past[-2] if past else 0) for key, mask, past in kept)


def _has_no_elements(case: Case) -> bool:
    """Whether one of its arrays is empty."""
    return any(not array.size for array in _arrays(case))


def _attributes(case: Case) -> Iterator[dict[str, Any]]:
    for node in case.proto().graph.node:
        yield {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}


_UNDEFINED = "RoiAlign|NegativeLogLikelihoodLoss|SoftmaxCrossEntropyLoss|Scatter(Elements|ND)|Attention"
_EXTREMA = "ReduceMax|ReduceMin|MaxPool|RoiAlign"
_NAN_OR_FALSE = r"NaN or infinity.*\[[^]]*nan[^]]*\] for|\[False"
_INTEGER_SUMS = r"Reduce(Sum|SumSquare|Prod|L1|L2|LogSumExp|Mean)\b|Einsum"
_LOGARITHMS = "(LogSoftmax|SoftmaxCrossEntropyLoss).*double"
_ROUNDED = r"\d{16}|for \[[^]]*(2147483647|-2147483648)"
"""Integers that float64 may have to round, or that were cut off at the ends of their type."""

KNOWN = (
    Known("an axis, stride, dilation or other number beyond 32 bits", "refused", detail=r"F204.*\d{10}"),
    Known("a `mode`, `reduction` or the like", "refused", _UNDEFINED, "F204.*(mode|reduction)"),
    Known("a `mode`, `reduction` or the like", "refused", "Gelu.*float16", "F204.*approximate"),
    Known("`MeanVarianceNormalization` with axes", "refused", "MeanVarianceNormalization", "F204.*has not"),
    Known("`MeanVarianceNormalization` with axes", "refused", "CenterCropPad", "F204.*0 or more|F302"),
    Known("`MeanVarianceNormalization` with axes", "refused", "Reduce|ArgM", "F204.*for a tensor of rank 0"),
    Known("`MeanVarianceNormalization` with axes", "refused", "CumSum|CumProd", "axis", when=_has_no_elements),
    Known("`MeanVarianceNormalization` with axes", "refused", "Window", "negative size", when=_makes_half),
    Known("`Split` whose `num_outputs`", "refused", "Split", "num_outputs"),
    Known("`GatherND` whose indices have other batches", "refused", "GatherND", r"F204.*first \d+ axes"),
    Known("`GatherND` whose indices have other batches", "refused", "ReverseSequence", "F204.*(time|batch)_axis"),
    Known("`GatherND` whose indices have other batches", "refused", "PRelu", "F204.*does not broadcast"),
    Known("`RotaryEmbedding` with an `interleaved`", "refused", "RotaryEmbedding", "interleaved"),
    Known("`ReduceLogSum` of integers", "refused", "ReduceLogSum", "F201: Log"),
    Known("`Constant` with unknown attributes", "refused", r"^Constant\b", "F201"),
    Known("the size of a window as a row", "refused", "Window", "F20[24].*must be a scalar"),
    Known("`RoiAlign` with a `sampling_ratio`", "refused", "RoiAlign", "F204.*from 0 to 2048"),
    Known("MaxRoiPool of a box with NaN", "refused", "MaxRoiPool", "F302.*box", when=_odd),
    Known("a shape that the model declares", "refused", detail="F302.*(match_cast|declared|the model says)"),
    Known("`auto_pad` of a convolution with dilations", "accepted", "Conv", "ilation"),
    Known("`RNN`, `LSTM` and `GRU` of `layout` 1", "accepted", "RNN|LSTM|GRU", "layout"),
    Known("QuantizeLinear, QLinearConv, QLinearMatMul of NaN", "differs", "QuantizeLinear|QLinear", note="nan|inf"),
    Known("`auto_pad` of a pool whose strides", "accepted", "Pool", "must be non-negative", when=_skips(0)),
    Known("A pool over no axes", "accepted", "Pool", "Unsupported (pooling|kernel)|less than 3"),
    Known("`Dropout` whose training mode", "accepted", "Dropout", "ratio must be in the range", when=_may_train),
    Known("`Binarizer` of NaN", "accepted", "Binarizer", "is NaN", when=_odd),
    Known("`MeanVarianceNormalization` of float16", "accepted", "MeanVarianceNormalization.*float16", "ReduceMean"),
    Known("`BitCast` of what ONNX Runtime", "accepted", "BitCast.*float16", "same bit-width"),
    Known("`Attention` with `left_window_size`", "accepted", "Attention", "attribute: (left|right)_window"),
    Known("`Attention` with a mask that is shorter", "accepted", "Attention", "ForAttention", when=_has_short_mask),
    Known("`Attention` with keys of before", "accepted", "Attention", r"attention\.cc", when=_forgets_the_past),
    Known("`Attention` with a mask of integers", "accepted", "Attention", r"\(T\) of Optype \(Add\)"),
    Known("`RMSNormalization` whose scale", "accepted", "RMSNormalization", r"\(T\) of Optype \(Mul\)"),
    Known("Resize by `linear` or `cubic`", "accepted", "Resize", "mode only supports"),
    Known("`ConvInteger` with a zero point for each", "accepted", "ConvInteger", "Non per-tensor quantization"),
    Known("a complex constant", "accepted", r"Shape.*complex", "complex"),
    Known("the sizes of a `Resize`", "accepted", "Resize", r"input 'sizes' \(0\)"),
    Known("LRN of other than four axes", "accepted", "LRN", r"NumDimensions\(\) == 4"),
    Known("ScatterElements into data without", "accepted", r"\bDiv\b", "division by zero", when=_has_no_elements),
    Known("ScatterElements into data without", "accepted", "ScatterElements", r"range \[0,-1\]", when=_has_no_elements),
    Known("an operator whose input or result", "accepted", "ArrayFeatureExtractor", "= 0", when=_has_no_elements),
    Known("Clip of int64 with a bound", "differs", r"\bClip\b.*int64", when=_beyond_int32),
    Known("Sign of int64", "differs", "Sign", when=_beyond_int32),
    Known("MaxRoiPool of float64 where", "differs", r"MaxRoiPool.*double", r"for \[-3\.40282347e\+38"),
    Known("MaxRoiPool of an image with NaN", "differs", "MaxRoiPool", "NaN or infinity", when=_odd),
    Known("`linear` Resize and Upsample", "differs", "Resize|Upsample", "NaN or infinity.*nan[^]]*] for", when=_odd),
    Known("InstanceNormalization with a scale", "differs", "InstanceNormalization", "NaN or infinity", when=_odd),
    Known("InstanceNormalization with a scale", "differs", "MeanVarianceNormalization", "NaN or infinity", when=_odd),
    Known("InstanceNormalization with a scale", "differs", "GroupNormalization", "NaN or infinity", when=_odd),
    Known("Sin, Cos of numbers beyond 2^30", "differs", r"\b(Sin|Cos)\b", when=_odd),
    Known("GridSample where a coordinate is NaN", "differs", "GridSample", when=_odd),
    Known("Cast with a `saturate`", "differs", "Cast", when=_saturates_oddly),
    Known("ReduceMax, ReduceMin, MaxPool, RoiAlign of NaN", "differs", _EXTREMA, when=_meets_nan),
    Known("ReduceMax, ReduceMin, MaxPool, RoiAlign of NaN", "differs", "Scatter(Ele|ND)", when=_scatters_extremes),
    Known("ArgMax, ArgMin of NaN", "differs", "ArgMax|ArgMin", when=_meets_nan),
    Known("TopK of NaN", "differs", "TopK", when=_meets_nan),
    Known("Hardmax of NaN", "differs", "Hardmax", when=_meets_nan),
    Known("Clip whose bound, an input, is NaN", "differs", "Clip", when=_odd),
    Known("QuantizeLinear, DynamicQuantizeLinear of NaN", "differs", "QuantizeLinear", when=_odd),
    Known("Einsum of three and more operands", "differs", "Einsum", "NaN or infinity", when=_multiplies_three),
    Known("LayerNormalization of numbers whose sum", "differs", "LayerNormalization", "NaN or infinity", when=_odd),
    Known("ReduceSum, ReduceSumSquare, ReduceProd", "differs", _INTEGER_SUMS, _ROUNDED),
    Known("ReduceSum, ReduceSumSquare, ReduceProd", "differs", _INTEGER_SUMS, when=_beyond_float64),
    Known("Mod with fmod=1", "differs", r"\bMod\b", when=_beyond_float64),
    Known("LogSoftmax, SoftmaxCrossEntropyLoss of float64", "differs", _LOGARITHMS, "NaN or inf", when=_meets_nan),
    Known("`Attention` with `is_causal` of one query", "differs", "Attention", when=_asks_one_query),
    Known("`Attention` of numbers below", "differs", "Attention", "NaN or infinity", when=_has_subnormal),
    Known("TopK with a `sorted`", "differs", "TopK", when=_leaves_unsorted),
    Known("BatchNormalization whose `training_mode`", "differs", "BatchNormalization", "one of the values is empty"),
    Known("x plus a constant 0", "differs", "ReduceLogSumExp", r"NaN or infinity.*inf\] for \[-?inf"),
    Known("ReduceLogSumExp of bfloat16", "differs", "ReduceLogSumExp.*bfloat16", r"for \[-?inf"),
    Known("`Conv` and `LpPool` with `auto_pad`", "differs", r"\b(Conv|LpPool)\b", when=_skips(1)),
    Known("ArgMax, ArgMin, reductions by an axis", "differs", "ArgMax|ArgMin|Reduce", "^shape", when=_has_no_elements),
    Known("ArgMax, ArgMin, reductions by an axis", "differs", "ArgMax|ArgMin|Reduce", r"^shape .* of \(.*\b0\b"),
    Known("ArgMax, ArgMin, reductions by an axis", "refused", "ArgMax|ArgMin", "F204.*no entry", when=_has_no_elements),
    Known("ConvTranspose of NaN", "differs", "ConvTranspose", "NaN or infinity", when=_odd),
    Known("RNN, LSTM, GRU of numbers so large", "differs", "RNN|LSTM|GRU", r"^error ", when=_odd),
    Known("RNN, LSTM, GRU of NaN", "differs", "RNN|LSTM|GRU", _NAN_OR_FALSE, when=_odd),
    Known("Cast of float8e8m0", "differs", "Cast.*float8e8m0"),
    Known("LRN of NaN", "differs", "LRN", r"NaN or infinity.* for \[[^]]*nan", when=_odd),
    Known("LRN with an infinite `alpha`", "differs", "LRN", r"NaN or infinity.* for \[[^]]*nan", note="inf"),
    Known("Unique of NaN", "differs", "Unique", when=_meets_nan),
    Known("Gelu of -inf", "differs", "Gelu", r"NaN or infinity.* for \[[^]]*nan", when=_odd),
    Known("BatchNormalization, of statistics", "differs", "BatchNormalization", "NaN or infinity", when=_odd),
)


def permitted(outcome: Outcome) -> Known | None:
    """Return the row that permits `outcome`, or None."""
    return next((known for known in KNOWN if _covers(known, outcome)), None)


def _covers(known: Known, outcome: Outcome) -> bool:
    patterns = ((known.where, _subject(outcome)), (known.detail, outcome.detail), (known.note, outcome.note))
    if known.verdict != outcome.verdict or not all(re.search(pattern, text) for pattern, text in patterns):
        return False
    return known.when is None or (outcome.case is not None and known.when(outcome.case))


def _subject(outcome: Outcome) -> str:
    """Return which operators a finding is about: of a file, those in it."""
    case = outcome.case
    if outcome.kind != "files" or case is None or case.form != "onnx" or outcome.verdict != "differs":
        return outcome.where
    return " ".join(node.op_type for node in case.proto().graph.node)
