"""Which values an attribute may have, whatever the inputs are."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from math import inf
from typing import Any

from onnx import TensorProto

from fusion.frontends.onnx.node import Node


@dataclass(frozen=True)
class _Allowed:
    """What a value must be: a test, and how errors put it."""

    holds: Callable[[Any], bool]
    text: str


def _one_of(*values: object) -> _Allowed:
    return _Allowed(lambda value: value in values, f"one of {', '.join(repr(value) for value in values)}")


def _at_least(low: float) -> _Allowed:
    return _Allowed(lambda value: value >= low, f"{low} or more")


def _each_at_least(low: int) -> _Allowed:
    high = (1 << 31) - 1
    return _Allowed(lambda values: all(low <= value <= high for value in values), f"from {low} to {high} each")


_FLAG = _one_of(0, 1)
_POSITIVE = _at_least(1)
_ODD = _Allowed(lambda value: value > 0 and value % 2 == 1, "an odd number from 1 on")
_ABOVE_ZERO = _Allowed(lambda value: value > 0, "more than 0")
_COUNT = _Allowed(lambda value: 0 <= value < 1 << 31, f"from 0 to {(1 << 31) - 1}")
# Of a wider one ONNX Runtime keeps the low 32 bits.
_NARROW = _Allowed(lambda value: -1 << 31 <= value < 1 << 31, f"from {-1 << 31} to {(1 << 31) - 1}")
# ONNX Runtime ends the process where the number of all samples overflows.
_SAMPLES = _Allowed(lambda value: 0 <= value <= 2048, "from 0 to 2048")
_SIZES = _each_at_least(1)
_NOT_EMPTY = _Allowed(lambda values: len(values) > 0, "one axis or more")
# "" is what ONNX Runtime reads as NOTSET.
_AUTO_PAD = _one_of("NOTSET", "VALID", "SAME_UPPER", "SAME_LOWER", "")
_WINDOW = {"auto_pad": _AUTO_PAD, "kernel_shape": _SIZES, "strides": _SIZES, "dilations": _SIZES}
_CONVOLUTION = {**_WINDOW, "group": _POSITIVE}
_POOL = {**_WINDOW, "storage_order": _FLAG}
_RESIZE = {
    "mode": _one_of("nearest", "linear", "cubic"),
    "coordinate_transformation_mode": _one_of(
        "half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric",
        "tf_half_pixel_for_nn", "tf_crop_and_resize",
    ),
    "nearest_mode": _one_of("round_prefer_floor", "round_prefer_ceil", "floor", "ceil", "simple", ""),
    "keep_aspect_ratio_policy": _one_of("stretch", "not_larger", "not_smaller"),
}  # fmt: skip
_RECURRENT = {
    "direction": _one_of("forward", "reverse", "bidirectional"),
    "hidden_size": _POSITIVE,
    "layout": _FLAG,
}
_LOSS = {"reduction": _one_of("none", "mean", "sum")}
_CUMULATIVE = {"exclusive": _FLAG, "reverse": _FLAG}

_ALLOWED: Mapping[str, Mapping[str, _Allowed]] = {
    "Attention": {"is_causal": _NARROW, "scale": _Allowed(lambda value: not value <= 0, "more than 0")},
    "AveragePool": _POOL,
    "BitShift": {"direction": _one_of("LEFT", "RIGHT")},
    "Conv": _CONVOLUTION,
    "ConvInteger": _CONVOLUTION,
    "ConvTranspose": _CONVOLUTION,
    "CumProd": _CUMULATIVE,
    "CumSum": _CUMULATIVE,
    "DeformConv": {**_CONVOLUTION, "offset_group": _POSITIVE},
    "DepthToSpace": {"blocksize": _POSITIVE, "mode": _one_of("DCR", "CRD")},
    "GRU": {**_RECURRENT, "linear_before_reset": _NARROW},
    "Gelu": {"approximate": _one_of("none", "tanh")},
    "GridSample": {
        "mode": _one_of("linear", "nearest", "cubic", "bilinear", "bicubic"),
        "padding_mode": _one_of("zeros", "border", "reflection"),
    },
    "GatherND": {"batch_dims": _at_least(0)},
    "GroupNormalization": {"num_groups": _POSITIVE},
    "LRN": {"size": _ODD, "alpha": _ABOVE_ZERO, "beta": _ABOVE_ZERO},
    "LSTM": _RECURRENT,
    "LpNormalization": {"p": _one_of(1, 2)},
    "LpPool": _POOL,
    "MaxPool": _POOL,
    "MaxUnpool": _WINDOW,
    "MeanVarianceNormalization": {"axes": _NOT_EMPTY},
    "Mod": {"fmod": _FLAG},
    "NegativeLogLikelihoodLoss": _LOSS,
    "Pad": {"mode": _one_of("constant", "reflect", "edge", "wrap")},
    "QLinearConv": _CONVOLUTION,
    "RNN": _RECURRENT,
    "Resize": _RESIZE,
    "RoiAlign": {
        "mode": _one_of("avg", "max"),
        "coordinate_transformation_mode": _one_of("half_pixel", "output_half_pixel"),
        "output_height": _at_least(0),
        "output_width": _at_least(0),
        "sampling_ratio": _SAMPLES,
    },
    "RotaryEmbedding": {"interleaved": _FLAG, "num_heads": _COUNT, "rotary_embedding_dim": _COUNT},
    "ScatterElements": {"reduction": _one_of("none", "add", "mul", "min", "max")},
    "ScatterND": {"reduction": _one_of("none", "add", "mul", "min", "max")},
    "SoftmaxCrossEntropyLoss": _LOSS,
    "SpaceToDepth": {"blocksize": _POSITIVE},
    "Split": {"num_outputs": _POSITIVE},
    "TensorScatter": {"mode": _one_of("linear", "circular")},
    "TfIdfVectorizer": {"max_skip_count": _COUNT},
    "TreeEnsemble": {"n_targets": _POSITIVE},
    "TreeEnsembleRegressor": {"n_targets": _POSITIVE},
    "Upsample": _RESIZE,
}
# Of statistics; nothing else is made by it, and ONNX Runtime computes in float32 whatever it says.
_STASHED = _one_of(TensorProto.FLOAT, TensorProto.BFLOAT16)
_ELEMENT = _Allowed(lambda value: value in TensorProto.DataType.values() and value != 0, "an element type of ONNX")
_FLOAT8 = frozenset(
    {
        TensorProto.FLOAT8E4M3FN,
        TensorProto.FLOAT8E4M3FNUZ,
        TensorProto.FLOAT8E5M2,
        TensorProto.FLOAT8E5M2FNUZ,
        TensorProto.FLOAT8E8M0,
    }
)
_ELEMENTS = {"BitCast": "to", "Cast": "to", "EyeLike": "dtype"}


def values_out_of_range(node: Node) -> Iterator[str]:
    """Yield which attributes of `node` have a value that is never allowed."""
    if node.proto.domain not in ("", "ai.onnx.ml"):
        return
    allowed = {**_ALLOWED.get(node.op, {}), **({_ELEMENTS[node.op]: _ELEMENT} if node.op in _ELEMENTS else {})}
    for name, rule in allowed.items():
        value = node.attr(name)
        if value is not None and not rule.holds(value) and not _is_unread(node, name):
            yield f"{name} is {value!r}, and must be {rule.text}"
    if node.op == "Cast" and not node.attr("saturate", 1) and node.attr("to") not in _FLOAT8:
        yield "saturate is 0, which only a Cast to float8 may say"
    if node.op == "LayerNormalization" and (node.wants(1) or node.wants(2)) and not _STASHED.holds(_stash_type(node)):
        yield f"stash_type is {_stash_type(node)}, and must be {_STASHED.text} for its statistics"
    if node.op == "Mod" and node.opset < 28 and not node.attr("fmod", 0) and node.is_floating(0):
        yield "fmod is 0, and must be 1 for floating-point numbers"
    if node.op == "Resize" and node.attr("exclude_outside", 0) and not _weighs_pixels(node):
        yield "exclude_outside is set, which only cubic and antialiased linear resizing may say"
    if node.op == "Clip" and node.opset < 11 and not node.attr("min", -inf) <= node.attr("max", inf):
        yield f"min is {node.attr('min', -inf)}, and max is {node.attr('max', inf)}"


def _is_unread(node: Node, name: str) -> bool:
    """Return whether ONNX Runtime looks at an attribute for another `mode` only."""
    return name == "nearest_mode" and node.attr("mode", "nearest") != "nearest"


def _stash_type(norm: Node) -> int:
    return int(norm.attr("stash_type", TensorProto.FLOAT))


def _weighs_pixels(resize: Node) -> bool:
    mode = resize.attr("mode", "nearest")
    return mode == "cubic" or (mode == "linear" and bool(resize.attr("antialias", 0)))
