"""An ONNX graph while it is written."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import GraphProto, NodeProto, TensorProto, ValueInfoProto, helper, numpy_helper

OPSET = 20
"""The operator set that is written: the first with Gelu."""
IR_VERSION = 9


@dataclass
class OnnxNames:
    """Names of values, each given once in a model.

    Attributes:
        taken: Those that are given.
    """

    taken: set[str] = field(default_factory=set)

    def make(self, base: str) -> str:
        """Return `base`, or with a number behind it where that is taken."""
        found, number = base, 1
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self.taken.add(found)
        return found


@dataclass
class WrittenGraph:
    """Nodes and weights, in the order they are added.

    Attributes:
        names: Shared by a model and the bodies in it, as those see its values.
        nodes: What is computed.
        weights: Constants, equal ones once. Those of bodies lie in the model's.
    """

    names: OnnxNames = field(default_factory=OnnxNames)
    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    _known: dict[bytes, str] = field(default_factory=dict, init=False)

    def body(self) -> WrittenGraph:
        """Return an empty graph that sees the values of this one."""
        inner = WrittenGraph(self.names, weights=self.weights)
        inner._known = self._known
        return inner

    def emit(self, operator: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> None:
        """Add a node; attributes that are None are left out."""
        given = {name: value for name, value in attributes.items() if value is not None}
        self.nodes.append(helper.make_node(operator, list(inputs), list(outputs), outputs[0], **given))

    def constant(self, array: np.ndarray, base: str = "constant") -> str:
        """Return the name of a weight that is `array`."""
        array = np.ascontiguousarray(array).reshape(np.shape(array))
        text = f"{array.dtype.name} {array.shape}".encode()
        key = hashlib.blake2b(text + array.tobytes()).digest()
        if key not in self._known:
            self._known[key] = self.names.make(base)
            self.weights[self._known[key]] = numpy_helper.from_array(array, self._known[key])
        return self._known[key]

    def finish(
        self, name: str, inputs: Sequence[ValueInfoProto], outputs: Sequence[ValueInfoProto], *, weights: bool = True
    ) -> GraphProto:
        """Return the graph; without its `weights` where it is a body."""
        return helper.make_graph(
            self.nodes, name, list(inputs), list(outputs), list(self.weights.values()) if weights else []
        )
