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
EIGHT_BITS = frozenset({"int8", "uint8"})


@dataclass(frozen=True)
class Widened:
    """What of 8 bits a value of int32 was made of.

    Attributes:
        source: It.
        dtype: Its dtype.
        is_single: Whether it is one number.
    """

    source: str
    dtype: str
    is_single: bool


@dataclass
class OnnxNames:
    """Names of values, each given once in a model.

    Attributes:
        taken: Those that are given.
    """

    taken: set[str] = field(default_factory=set)
    _numbers: dict[str, int] = field(default_factory=dict, init=False)

    def make(self, base: str) -> str:
        """Return `base`, or with a number behind it where that is taken."""
        found, number = base, self._numbers.get(base, 1)
        while found in self.taken:
            number += 1
            found = f"{base}_{number}"
        self._numbers[base] = number
        self.taken.add(found)
        return found


@dataclass
class WrittenGraph:
    """Nodes and weights, in the order they are added.

    Attributes:
        names: Shared by a model and the bodies in it, as those see its values.
        nodes: What is computed.
        weights: Constants, equal ones once. Those of bodies lie in the model's.
        widened: Values of int32 that were made of 8 bits, by name.
    """

    names: OnnxNames = field(default_factory=OnnxNames)
    nodes: list[NodeProto] = field(default_factory=list)
    weights: dict[str, TensorProto] = field(default_factory=dict)
    widened: dict[str, Widened] = field(default_factory=dict)
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

    def made_by(self, value: str) -> NodeProto | None:
        """Return the node of this graph that makes a value; None for an input, or for a weight."""
        return next((node for node in reversed(self.nodes) if value in node.output), None)

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
