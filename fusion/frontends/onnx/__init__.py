"""The ONNX frontend: load, bind shapes, then one pass that folds constants, infers types and converts node by node."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path

import onnx

from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.onnx.bind_shapes import bind_shapes
from fusion.frontends.onnx.fallback import can_cross, not_held, whole_model
from fusion.frontends.onnx.load import load_model
from fusion.frontends.onnx.read_model import ReadModel, read_model
from fusion.frontends.onnx.signature import overridable_inputs, read_specs, spec_of, true_inputs
from fusion.frontends.onnx.translate import translate
from fusion.frontends.onnx.whole import import_whole_onnx

__all__ = ["import_whole_onnx", "onnx_importer", "read_onnx_overridable", "read_onnx_signature", "take_as_inputs"]


def onnx_importer(
    source: Path | onnx.ModelProto, *, strict: bool, computes_made: bool = False
) -> Callable[[Mapping[str, Sequence[int]]], ImportedModel]:
    """Return what turns the ONNX model at or in `source`, which is read once, into Relax for given shapes; see
    `fusion.frontends.import_model`. Its weights stay in memory, which all that it returns share; `computes_made` is as
    in `translate`."""
    model = read_model(source)

    def read(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        imported = _import(model, shapes, strict=strict, computes_made=computes_made)
        return dataclasses.replace(imported, notes=model.notes)

    return read


def _import(
    model: ReadModel, shapes: Mapping[str, Sequence[int]], *, strict: bool, computes_made: bool
) -> ImportedModel:
    odd = [value for value in true_inputs(model.proto.graph) if not can_cross(value.type)]
    if odd and not strict:
        return whole_model(model.proto, not_held(odd[0].name, odd[0].type))
    inputs = bind_shapes(model.proto.graph, shapes)
    return translate(model.proto, model.weights, inputs, strict=strict, computes_made=computes_made)


def read_onnx_signature(source: Path | onnx.ModelProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs as the file declares them; weights are not read."""
    return read_specs(load_model(source, weights=False).graph)


def read_onnx_overridable(source: Path | onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """Return the weights that are inputs too, of which a caller may give another value."""
    return tuple(spec_of(value.name, value.type) for value in overridable_inputs(load_model(source, weights=False)))


def take_as_inputs(source: Path | onnx.ModelProto, names: Collection[str]) -> onnx.ModelProto:
    """Return the model at or in `source` without the weights `names`, so that they are inputs only."""
    model = onnx.ModelProto()
    model.CopyFrom(load_model(source))
    graph = model.graph
    kept = [tensor for tensor in graph.initializer if tensor.name not in names]
    sparse = [tensor for tensor in graph.sparse_initializer if tensor.values.name not in names]
    del graph.initializer[:], graph.sparse_initializer[:]
    graph.initializer.extend(kept)
    graph.sparse_initializer.extend(sparse)
    return model
