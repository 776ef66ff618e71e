"""A whole ONNX model for ONNX Runtime, which answers calls while fusion compiles it: only where that is safe.

Compiling for some shape checks each node with all that is known of it, and here nothing is known of sizes. So a model
is left out of which a node might end the process, or read what it must not, where the compiled form has a check.
"""

from __future__ import annotations

from pathlib import Path

import onnx
from tvm import relax

from fusion.frontends.imported import ImportedModel
from fusion.frontends.onnx.checked_operands import has_checked_operand
from fusion.frontends.onnx.checks import check_node
from fusion.frontends.onnx.fallback import whole_model
from fusion.frontends.onnx.load import Data, load_model
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.parts import nodes, tensors
from fusion.frontends.onnx.read_model import read_model
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import data_bytes
from fusion.system.memory import usable_memory

_CHECKED_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
"""ONNX Runtime's own operators end the process for some attributes and operands (Attention without a bias)."""
_COPIES = 6
"""Of the weights, that there are at a time while ONNX Runtime opens the model: 356 MB of them took 1.9 GB beside what
compiling takes."""


def import_whole_onnx(source: Path | onnx.ModelProto) -> ImportedModel | None:
    """Return the ONNX model at or in `source` as one subgraph for ONNX Runtime; None where that is not safe, or where
    memory might end.

    Raises:
        FusionError: The model breaks its format's rules, or ONNX Runtime does not take it.
    """
    declared = load_model(source, Data.NONE)
    held = sum(map(data_bytes, tensors(declared)))
    if _is_checked(declared) or held * _COPIES > usable_memory():
        return None
    read = read_model(source)
    model = read.proto
    if _is_checked(model):
        return None
    scope, builder, opset = ValueScope(), relax.BlockBuilder(), _opset(model)
    scope.add_weights(read.weights)
    for node in model.graph.node:
        check_node(Node(node, opset, (), scope, builder))
    return whole_model(model, "its form is being compiled")


def _is_checked(model: onnx.ModelProto) -> bool:
    return any(has_checked_operand(node) or node.domain not in _CHECKED_DOMAINS for node in nodes(model))


def _opset(model: onnx.ModelProto) -> int:
    return next((int(entry.version) for entry in model.opset_import if entry.domain in ("", "ai.onnx")), 1)
