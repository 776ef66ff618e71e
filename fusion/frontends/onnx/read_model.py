"""Reads an ONNX model into the one form that the rest of the frontend knows, with what is odd about it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import onnx
from onnx import inliner

from fusion.frontends.onnx.canonicalize import canonicalize
from fusion.frontends.onnx.check_model import check_model
from fusion.frontends.onnx.external_data import WeightFiles
from fusion.frontends.onnx.load import Data, load_model
from fusion.frontends.onnx.sort_nodes import sort_nodes
from fusion.frontends.onnx.weights import Weights, weights_with_nan


@dataclass(frozen=True, eq=False)
class ReadModel:
    """An ONNX model that may be imported for any shapes.

    Attributes:
        proto: Its nodes in order, local functions put in. Weights may be left apart: `Weights.in_model` has them.
        weights: Of its graph.
        notes: What reports should say of it, one sentence each.
    """

    proto: onnx.ModelProto
    weights: Weights
    notes: tuple[str, ...]


def read_model(source: Path | onnx.ModelProto, *, weights_apart: bool = False) -> ReadModel:
    """Return the model at or in `source`.

    Args:
        weights_apart: Whether the large weights of a file are in `weights` alone, and so in memory once.

    Raises:
        ModelFileError, InvalidModelError, UnsupportedOperatorError: As `load_model`, `check_model` and `Weights` do.
    """
    files = WeightFiles(source) if weights_apart and isinstance(source, Path) else None
    proto = sort_nodes(canonicalize(load_model(source, Data.APART if files else Data.ALL)))
    notes = check_model(proto, lambda: canonicalize(load_model(source)) if files else proto)
    if proto.functions:
        proto = inliner.inline_local_functions(proto)
    weights = Weights.of(proto.graph, files).with_constants(proto.graph)
    return ReadModel(proto, weights, (*notes, *weights_with_nan(proto, weights)))
