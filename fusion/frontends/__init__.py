"""From a model file or object to Relax: `import_model` picks the frontend by what it is given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import onnx
from tvm.relax.frontend.onnx import from_onnx

from fusion.frontends.imported import FallbackNode, ImportedModel, TensorSpec

__all__ = ["FallbackNode", "ImportedModel", "TensorSpec", "import_model"]


def import_model(model: Any, shapes: Mapping[str, Sequence[int]] | None = None) -> ImportedModel:
    """Return `model` as Relax. (Skeleton: the ONNX frontend replaces this.)"""
    proto = onnx.load(model) if isinstance(model, str) else model
    mod = from_onnx(proto, shape_dict={k: list(v) for k, v in (shapes or {}).items()} or None)
    params = mod["main"].params
    names = [i.name for i in proto.graph.input if i.name not in {w.name for w in proto.graph.initializer}]
    inputs = tuple(
        TensorSpec(name, tuple(int(d) for d in p.ty.shape), str(p.ty.dtype)) for name, p in zip(names, params, strict=True)
    )
    outputs = tuple(TensorSpec(o.name, (), "float32") for o in proto.graph.output)
    return ImportedModel(mod, inputs, outputs)
