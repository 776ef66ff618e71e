"""Models as Relax and as ONNX again."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from backends.to_onnx.export import export_function
from fusion.frontends import import_model
from fusion.passes.inline_branches import InlineBranches
from tests.frontends.against_onnxruntime import onnxruntime_runs


def exported(model: Any, shapes: Mapping[str, tuple[int, ...]] | None = None) -> onnx.ModelProto:
    """Return what is written of a model."""
    imported = import_model(model, shapes, strict=True)
    mod = InlineBranches(imported.branches)(imported.mod)
    names = ([spec.name for spec in specs] for specs in (imported.inputs, imported.outputs))
    return export_function(mod["main"], *names)


def round_trip(model: Path | onnx.ModelProto, inputs: Mapping[str, np.ndarray]) -> tuple[list[Any], list[Any]]:
    """Return the results of what is written of `model` at the shapes of `inputs`, and its own."""
    written = exported(str(model) if isinstance(model, Path) else model, {k: v.shape for k, v in inputs.items()})
    onnx.checker.check_model(written, full_check=True)
    taken = {value.name for value in written.graph.input}
    found = onnxruntime_runs(written, {name: value for name, value in inputs.items() if name in taken})
    return found, onnxruntime_runs(onnx.load(model) if isinstance(model, Path) else model, inputs)
