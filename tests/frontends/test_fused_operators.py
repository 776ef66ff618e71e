"""Operators of ONNX Runtime's own run in kernels, with its numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import NodeProto, TensorProto, helper, numpy_helper

from tests.frontends.against_onnxruntime import check

RNG = np.random.default_rng(0)
KINDS = {"float32": TensorProto.FLOAT, "int32": TensorProto.INT32, "int64": TensorProto.INT64}


def values(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape, dtype=np.float32)


def fused(op: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> NodeProto:
    return helper.make_node(op, list(inputs), list(outputs), domain="com.microsoft", **attributes)


def agree(
    nodes: Sequence[NodeProto],
    inputs: Mapping[str, np.ndarray],
    weights: Mapping[str, np.ndarray] | None = None,
    opset: int = 17,
    tolerance: float = 2e-5,
    fallbacks: Sequence[str] = (),
) -> None:
    """Check all that `nodes` compute."""
    given = [helper.make_tensor_value_info(name, KINDS[str(x.dtype)], x.shape) for name, x in inputs.items()]
    names = [name for item in nodes for name in item.output if name]
    made = [onnx.ValueInfoProto(name=name) for name in names]
    tensors = [numpy_helper.from_array(array, name) for name, array in (weights or {}).items()]
    graph = helper.make_graph(list(nodes), "fused", given, made, tensors)
    opsets = [helper.make_opsetid("", opset), helper.make_opsetid("com.microsoft", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=8)
    check(model, inputs, fallbacks=fallbacks, tolerance=tolerance)


def test_activations() -> None:
    agree(
        [
            fused("Gelu", ["x"], ["gelu"]),
            fused("BiasGelu", ["x", "b"], ["bias_gelu"]),
            fused("FastGelu", ["x"], ["fast"]),
            fused("FastGelu", ["x", "b"], ["fast_bias"]),
            fused("QuickGelu", ["x"], ["quick"]),
            fused("QuickGelu", ["x"], ["silu"], alpha=1.0),
        ],
        {"x": values(3, 4, 8)},
        {"b": values(8)},
    )


def test_products() -> None:
    gemm = {"activation": "LeakyRelu", "activation_alpha": 0.2}
    agree(
        [
            fused("FusedMatMul", ["a", "b"], ["plain"], alpha=0.5),
            fused("FusedMatMul", ["at", "b"], ["left"], transA=1),
            fused("FusedMatMul", ["a", "bt"], ["right"], transB=1, alpha=2.0),
            fused("FusedMatMul", ["batch", "b"], ["batches"], transBatchA=1),
            fused("FusedMatMul", ["batch_t", "bt"], ["batches_t"], transA=1, transBatchA=1, transB=1),
            fused("TransposeMatMul", ["at", "bt"], ["both"], transA=1, transB=1),
            fused("FusedGemm", ["m", "w", "c"], ["gemm"], transB=1, alpha=0.5, beta=2.0, **gemm),
            fused("FusedGemm", ["m", "w"], ["relu"], transB=1, activation="Relu"),
        ],
        {"a": values(2, 3, 4), "at": values(2, 4, 3), "batch": values(3, 2, 4), "batch_t": values(4, 2, 3),
         "m": values(3, 4)},
        {"b": values(2, 4, 5), "bt": values(2, 5, 4), "w": values(5, 4), "c": values(5)},
    )  # fmt: skip


@pytest.mark.parametrize(
    ("activation", "parameters"),
    [
        ("Relu", []),
        ("Sigmoid", []),
        ("Tanh", []),
        ("LeakyRelu", [0.3]),
        ("Clip", [-0.5, 1.5]),
        ("HardSigmoid", [0.3, 0.6]),
    ],
)
def test_convolutions(activation: str, parameters: list[float]) -> None:
    given = {"activation": activation, "activation_params": parameters} if parameters else {"activation": activation}
    agree(
        [
            fused("FusedConv", ["x", "w", "b", "z"], ["y"], pads=[1, 1, 1, 1], **given),
            fused("FusedConv", ["x", "w"], ["strided"], strides=[2, 2], **given),
        ],
        {"x": values(1, 4, 6, 6), "z": values(1, 5, 6, 6)},
        {"w": values(5, 4, 3, 3), "b": values(5)},
    )


def test_norms() -> None:
    weights = {"scale": values(8), "bias": values(8), "more": values(8)}
    agree(
        [
            fused("SkipLayerNormalization", ["x", "s", "scale", "bias", "more"], ["y", "", "", "sum"], epsilon=1e-3),
            fused("SkipLayerNormalization", ["x", "s", "scale"], ["z"]),
            fused("SkipLayerNormalization", ["x", "row", "scale", "bias"], ["broadcast"]),
            fused("SkipSimplifiedLayerNormalization", ["x", "s", "scale", "more"], ["v", "", "", "sum2"]),
            fused("SkipSimplifiedLayerNormalization", ["x", "s", "scale"], ["w"], epsilon=1e-2),
        ],
        {"x": values(2, 3, 8), "s": values(2, 3, 8), "row": values(3, 8)},
        weights,
    )


@pytest.mark.parametrize("opset", [7, 16])
def test_norms_before_onnx_had_them(opset: int) -> None:
    agree(
        [
            helper.make_node("LayerNormalization", ["x", "scale", "bias"], ["y", "mean", "spread"], epsilon=1e-3),
            helper.make_node("LayerNormalization", ["x", "scales"], ["z"], axis=1),
            helper.make_node("SimplifiedLayerNormalization", ["x", "scale"], ["s", "divisor"]),
        ],
        {"x": values(2, 3, 8)},
        {"scale": values(8), "bias": values(8), "scales": values(3, 8)},
        opset,
    )


def test_group_norm_with_a_scale_for_each_group() -> None:
    groups = helper.make_node("GroupNormalization", ["x", "scale", "bias"], ["y"], num_groups=2, epsilon=1e-3)
    agree([groups], {"x": values(2, 6, 4, 5)}, {"scale": values(2), "bias": values(2)}, 18)


def test_embeddings() -> None:
    tables = {"words": values(20, 8), "places": values(16, 8), "kinds": values(2, 8)}
    ids = {name: RNG.integers(0, 2, (2, 5)).astype(np.int32) for name in ("ids", "segments", "mask", "at")}
    weights = {**tables, "scale": values(8), "bias": values(8)}
    read = ["ids", "segments", "words", "places", "kinds", "scale", "bias"]
    agree(
        [
            fused("EmbedLayerNormalization", [*read, "mask"], ["y", "lengths", "sum"], epsilon=1e-3),
            fused("EmbedLayerNormalization", [*read, "", "at"], ["z", "none"]),
            fused("EmbedLayerNormalization", ["ids", "", "words", "places", "", "scale", "bias"], ["plain", "no"]),
        ],
        ids,
        weights,
    )


MASKS = {
    "none": None,
    "lengths": np.array([2, 4], np.int32),
    "keys": np.array([[1, 1, 0, 0, 0], [1, 0, 1, 1, 1]], np.int32),
    "queries": (RNG.random((2, 5, 5)) < 0.7).astype(np.int32) | np.eye(5, dtype=np.int32),
    "nothing passes": np.array([[0, 0, 0, 0, 0], [1, 0, 1, 1, 1]], np.int32),
}


@pytest.mark.parametrize("mask", MASKS.values(), ids=MASKS)
def test_attention(mask: np.ndarray | None) -> None:
    inputs = {"x": values(2, 5, 8), "more": values(2, 2, 5, 5)} | ({} if mask is None else {"mask": mask})
    given = "" if mask is None else "mask"
    weights = {"w": values(8, 24), "b": values(24), "v": values(8, 20), "c": values(20)}
    agree(
        [
            fused("Attention", ["x", "w", "b", given], ["y"], num_heads=2),
            fused("Attention", ["x", "w", "b", given], ["causal"], num_heads=2, unidirectional=1),
            fused("Attention", ["x", "w", "b", given, "", "more"], ["biased"], num_heads=2, scale=0.3),
            fused("Attention", ["x", "v", "c", given], ["narrow"], num_heads=2, qkv_hidden_sizes=[8, 8, 4]),
        ],
        inputs,
        weights,
        # Scores of which 10,000 was subtracted have three digits left behind the point.
        tolerance=2e-3 if mask is not None and not mask[0].any() else 2e-5,
    )


def test_attention_of_no_rows() -> None:
    agree(
        [
            fused("Attention", ["x", "w", "b"], ["y"], num_heads=2),
            fused("MultiHeadAttention", ["x", "x", "v"], ["z"], num_heads=2),
        ],
        {"x": values(2, 0, 8), "v": values(2, 0, 4)},
        {"w": values(8, 24), "b": values(24)},
    )


def test_attention_of_several_heads() -> None:
    agree(
        [
            fused("MultiHeadAttention", ["q", "k", "v"], ["y"], num_heads=2),
            fused("MultiHeadAttention", ["q", "k", "v", "b", "keys", "more"], ["masked"], num_heads=2, scale=0.4),
            fused("MultiHeadAttention", ["q", "q", "q"], ["causal"], num_heads=4, unidirectional=1),
        ],
        {"q": values(2, 3, 8), "k": values(2, 5, 8), "v": values(2, 5, 4), "more": values(2, 2, 3, 5)},
        {"b": values(20), "keys": MASKS["keys"]},
    )


@pytest.mark.parametrize("interleaved", [0, 1])
def test_rotary_embedding(interleaved: int) -> None:
    angles = values(16, 4)
    inputs = {
        "x": values(2, 3, 16),
        "h": values(2, 2, 3, 8),
        "at": np.array([4], np.int64),
        "places": np.array([[0, 1, 2], [5, 4, 3]], np.int64),
    }
    agree(
        [
            fused("RotaryEmbedding", ["x", "at", "cos", "sin"], ["y"], interleaved=interleaved),
            fused("RotaryEmbedding", ["h", "places", "cos", "sin"], ["z"], interleaved=interleaved),
        ],
        inputs,
        {"cos": np.cos(angles), "sin": np.sin(angles)},
    )


def test_the_same_as_in_onnx() -> None:
    agree(
        [
            fused("Trilu", ["x", "k"], ["y"], upper=1),
            fused("ExpandDims", ["x", "axis"], ["z"]),
            fused("GatherND", ["x", "at"], ["g"]),
        ],
        {"x": values(4, 5)},
        {"k": np.array(1), "axis": np.array(1, np.int32), "at": np.array([[0, 1], [3, 2]])},
    )


def test_what_no_rule_takes_keeps_its_neighbours_in_kernels() -> None:
    """ONNX Runtime tells what its operators return, so that only these are for it."""
    agree(
        [
            helper.make_node("Relu", ["x"], ["h"]),
            fused("Inverse", ["h"], ["i"]),
            helper.make_node("Neg", ["i"], ["y"]),
        ],
        {"x": values(2, 4, 4) + 4 * np.eye(4, dtype=np.float32)},
        fallbacks=["Inverse"],
    )


def test_an_optimised_transformer() -> None:
    """A layer as ONNX Runtime's optimiser writes it: words to a classifier, without a node for ONNX Runtime."""
    ids = {name: RNG.integers(0, 2, (2, 5)).astype(np.int32) for name in ("ids", "segments", "mask")}
    weights = {"words": values(20, 8), "places": values(16, 8), "kinds": values(2, 8), "scale": values(8)}
    weights |= {"bias": values(8), "qkv": values(8, 24), "qkv_b": values(24), "up": values(8, 16), "up_b": values(16)}
    weights |= {"down": values(16, 8), "out": values(8, 3)}
    embedding = ["ids", "segments", "words", "places", "kinds", "scale", "bias", "mask"]
    agree(
        [
            fused("EmbedLayerNormalization", embedding, ["e", "lengths"]),
            fused("Attention", ["e", "qkv", "qkv_b", "lengths"], ["a"], num_heads=2),
            fused("SkipLayerNormalization", ["a", "e", "scale", "bias", "bias"], ["n"]),
            helper.make_node("MatMul", ["n", "up"], ["u"]),
            fused("BiasGelu", ["u", "up_b"], ["g"]),
            helper.make_node("MatMul", ["g", "down"], ["d"]),
            fused("SkipLayerNormalization", ["d", "n", "scale", "bias", "bias"], ["m", "", "", "sum"]),
            fused("FusedMatMul", ["m", "out"], ["y"], alpha=0.5),
        ],
        ids,
        weights,
    )
