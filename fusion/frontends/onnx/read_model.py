"""Reads an ONNX model into the one form that the rest of the frontend knows, with what is odd about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import inliner

from fusion.frontends.onnx.canonicalize import canonicalize
from fusion.frontends.onnx.check_model import check_model
from fusion.frontends.onnx.load import load_model
from fusion.frontends.onnx.sort_nodes import sort_nodes
from fusion.frontends.onnx.weights import Weights, weights_with_nan


@dataclass(frozen=True, eq=False)
class ReadModel:
    """An ONNX model that may be imported for any shapes.

    Attributes:
        proto: Its nodes in order, local functions put in.
        weights: Of its graph.
        notes: What reports should say of it, one sentence each.
    """

    proto: onnx.ModelProto
    weights: Weights
    notes: tuple[str, ...]


def read_model(source: Path | onnx.ModelProto) -> ReadModel:
    """Return the model at or in `source`.

    Raises:
        ModelFileError, InvalidModelError, UnsupportedOperatorError: As `load_model`, `check_model` and `Weights` do.
    """
    proto = sort_nodes(canonicalize(load_model(source)))
    notes = check_model(proto)
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    weights = Weights.of(proto.graph).with_constants(proto.graph)
    return ReadModel(proto, weights, (*notes, *weights_with_nan(proto, weights)))
