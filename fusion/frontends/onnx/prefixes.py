"""An ONNX model that is imported in part: its first nodes alone, or some of its nodes on ONNX Runtime."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import onnx

from fusion.frontends.imported import ImportedModel
from fusion.frontends.onnx.bind_shapes import bind_shapes
from fusion.frontends.onnx.expand import reads
from fusion.frontends.onnx.fallback import name_of, whole_model
from fusion.frontends.onnx.read_model import read_model
from fusion.frontends.onnx.translate import translate


class Prefixes:
    """The nodes of a model in their order, local functions put in."""

    def __init__(self, source: Path | onnx.ModelProto, shapes: Mapping[str, Sequence[int]]) -> None:
        read = read_model(source)
        self._model, self._weights, self._notes = read.proto, read.weights, read.notes
        self._inputs = bind_shapes(self._model.graph, shapes)
        self.nodes = list(self._model.graph.node)

    def first(self, count: int, declined: Mapping[str, str]) -> ImportedModel:
        """Return the first `count` nodes as a model that returns what the others read of them.

        Args:
            declined: Nodes, by their first output, that ONNX Runtime is to run, and why.
        """
        if count == len(self.nodes):
            whole = translate(self._model, self._weights, self._inputs, strict=False, declined=declined)
            return replace(whole, notes=self._notes)
        cut = onnx.ModelProto()
        cut.CopyFrom(self._model)
        del cut.graph.node[count:]
        made = {name for node in cut.graph.node for name in node.output if name}
        later = dict.fromkeys(name for node in self.nodes[count:] for name in reads(node))
        later.update(dict.fromkeys(value.name for value in self._model.graph.output))
        declared = {value.name: value for value in (*cut.graph.value_info, *cut.graph.output)}
        outputs = [declared.get(name, onnx.ValueInfoProto(name=name)) for name in later if name in made]
        del cut.graph.output[:]
        cut.graph.output.extend(outputs)
        return translate(cut, self._weights, self._inputs, strict=False, declined=declined)

    def whole(self, reason: str) -> ImportedModel:
        """Return the model as one subgraph for ONNX Runtime."""
        return replace(whole_model(self._model, reason), notes=self._notes)

    def name(self, index: int) -> str:
        """Return what `declined` calls a node."""
        return name_of(self.nodes[index])
