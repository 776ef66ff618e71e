"""One operator shape of the zoo as a model of its own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import onnx

from bench.inputs import InputSpec


@dataclass(frozen=True)
class Case:
    """An operator with its attributes and shapes.

    Attributes:
        name: Family and shapes, in the order of the operator's inputs; unique.
        family: "matmul", "conv", "depthwise", "grouped conv", "conv-transpose", "normalisation", "softmax",
            "attention" or "pooling".
        model: The operator alone: activations are inputs, weights initializers of random values.
        inputs: What the model takes.
        flops: Floating-point operations of its products; 0 where there are none and memory bounds it.
        bytes: Of inputs, weights and outputs.
        used: How often each zoo model has it, by the model's name.
    """

    name: str
    family: str
    model: onnx.ModelProto
    inputs: tuple[InputSpec, ...]
    flops: int
    bytes: int
    used: Mapping[str, int]
