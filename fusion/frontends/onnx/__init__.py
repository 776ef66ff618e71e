"""The ONNX frontend: load, bind shapes, then one pass that folds constants, infers types and converts node by node."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from fusion.frontends.imported import ImportedModel, TensorSpec
from fusion.frontends.onnx.bind_shapes import bind_shapes
from fusion.frontends.onnx.fallback import can_cross, not_held, whole_model
from fusion.frontends.onnx.load import Data, load_model
from fusion.frontends.onnx.read_model import ReadModel, read_model
from fusion.frontends.onnx.signature import overridable_inputs, read_specs, spec_of, true_inputs
from fusion.frontends.onnx.translate import translate
from fusion.frontends.onnx.whole import import_whole_onnx

__all__ = ["OnnxImporter", "import_whole_onnx", "read_onnx_overridable", "read_onnx_signature", "take_as_inputs"]


@dataclass(frozen=True, eq=False)
class OnnxImporter:
    """Turns an ONNX model, which is read once, into Relax for given shapes; see `fusion.frontends.import_model`. Its
    weights stay in memory, which all that it returns share.

    Attributes:
        strict: Refuse a model that needs a fallback subgraph.
        computes_made, byte_products, by_libraries: As in `translate`.
    """

    model: ReadModel
    strict: bool
    computes_made: bool = False
    byte_products: tuple[tuple[str, str], ...] = ()
    by_libraries: bool = False

    @classmethod
    def of(
        cls, source: Path | onnx.ModelProto, *, strict: bool, byte_products: tuple[tuple[str, str], ...] = (),
        by_libraries: bool = False,
    ) -> OnnxImporter:  # fmt: skip
        """Return that of the ONNX model at or in `source`.

        Raises:
            FusionError: As `import_model` raises of models that cannot be read.
        """
        read = read_model(source, weights_apart=True)
        return cls(read, strict, byte_products=byte_products, by_libraries=by_libraries)

    def __call__(self, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        """Return the model at these shapes of its inputs."""
        return replace(self._import(shapes), notes=self.model.notes)

    def _import(self, shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        model = self.model
        odd = [value for value in true_inputs(model.proto.graph) if not can_cross(value.type)]
        if odd and not self.strict:
            return whole_model(model.weights.in_model(model.proto), not_held(odd[0].name, odd[0].type))
        inputs = bind_shapes(model.proto.graph, shapes)
        return translate(
            model.proto, model.weights, inputs, strict=self.strict, computes_made=self.computes_made,
            byte_products=self.byte_products, by_libraries=self.by_libraries,
        )  # fmt: skip


def read_onnx_signature(source: Path | onnx.ModelProto) -> tuple[tuple[TensorSpec, ...], tuple[TensorSpec, ...]]:
    """Return inputs and outputs as the file declares them; weights are not read."""
    return read_specs(load_model(source, Data.NONE).graph)


def read_onnx_overridable(source: Path | onnx.ModelProto) -> tuple[TensorSpec, ...]:
    """Return the weights that are inputs too, of which a caller may give another value."""
    return tuple(spec_of(value.name, value.type) for value in overridable_inputs(load_model(source, Data.NONE)))


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
