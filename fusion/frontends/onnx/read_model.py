"""Reads an ONNX model into the one form that the rest of the frontend knows, with what is odd about it."""

from __future__ import annotations

from pathlib import Path

import onnx

from fusion.frontends.onnx.canonicalize import canonicalize
from fusion.frontends.onnx.check_model import check_model
from fusion.frontends.onnx.load import load_model
from fusion.frontends.onnx.sort_nodes import sort_nodes
from fusion.frontends.onnx.weights import weights_with_nan


def read_model(source: Path | onnx.ModelProto) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    """Return the model at or in `source`, its nodes in order, and notes.

    Raises:
        ModelFileError, InvalidModelError, UnsupportedOperatorError: As `load_model` and `check_model` do.
    """
    model = sort_nodes(canonicalize(load_model(source)))
    return model, (*check_model(model), *weights_with_nan(model))
