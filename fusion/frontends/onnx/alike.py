"""Finds nodes like an earlier one of the same import, which pass the same checks and make values of the same types.

    Add(x: [9, 384] float32, w: [384] float32)    and later    Add(y: [9, 384] float32, v: [384] float32)

Layers of a model differ in names and weights only: four of five nodes of MiniLM are like an earlier one, two of three
of ResNet-50, two of five of PP-OCR's recogniser. Nothing is kept for other imports, which are made for other sizes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, TypeProto
from tvm.ir import Type

from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import Shape, known_dims

_PLAIN = frozenset(
    {
        AttributeProto.FLOAT, AttributeProto.INT, AttributeProto.STRING,
        AttributeProto.FLOATS, AttributeProto.INTS, AttributeProto.STRINGS,
    }
)  # fmt: skip
"""Attributes that are short: graphs read values besides, and tensors may be large."""
_READS_NO_VALUES = frozenset(
    {
        "Add", "BatchNormalization", "Conv", "Div", "Gather", "Gemm", "LayerNormalization", "MatMul", "Mul", "Pow",
        "Sub", "Where",
    }
)  # fmt: skip
"""Operators of which neither a check nor inference reads the values of constants: weights, mostly."""
_MOST_ELEMENTS = 1024
"""Of a constant whose values are compared."""

Key = tuple[object, ...]


@dataclass
class Findings:
    """What has been found of a node, and holds of each that is like it.

    Attributes:
        is_checked: Whether `check_node` has let it pass.
        beyond_half: As that function says of it, once it is checked.
        types, shapes: Of its outputs in order, once inference tells all of these; nobody changes them.
        fits: Whether `check_types` has let these pass.
        constants: Its outputs that have a name, once they are computed while importing.
        results: The types, in Relax, of all that a converter makes of it, once they are known to be `types`.
    """

    is_checked: bool = False
    beyond_half: str = ""
    types: tuple[TypeProto, ...] = ()
    shapes: tuple[Shape, ...] = ()
    fits: bool = False
    constants: tuple[tuple[TensorProto, np.ndarray], ...] = ()
    results: tuple[Type, ...] = ()

    def keep(self, node: NodeProto, inferred: Mapping[str, TypeProto]) -> None:
        """Keep the types of the outputs of `node`, unless a run or the model's declaration says more of one."""
        types = [inferred[name] for name in node.output if name in inferred]
        shapes = [shape for shape in map(known_dims, types) if shape is not None]
        if len(shapes) == len(node.output):
            self.types, self.shapes = tuple(types), tuple(shapes)


@dataclass
class AlikeNodes:
    """The nodes of an import so far, by all that checks and inference read of one."""

    _found: dict[Key, Findings] = field(default_factory=dict, init=False)

    def find(self, node: NodeProto, opset: int, scope: ValueScope) -> Findings:
        """Return what is known of nodes like `node`, to which is added what is found of this one."""
        key = _key(node, opset, scope)
        return Findings() if key is None else self._found.setdefault(key, Findings())


def _key(node: NodeProto, opset: int, scope: ValueScope) -> Key | None:
    """Return all that checks and inference read of `node` but names, which errors tell alone; None where that is much,
    or not known."""
    parts: list[object] = [node.op_type, node.domain, opset, *map(bool, node.output)]
    for attribute in node.attribute:
        if attribute.type not in _PLAIN:
            return None
        parts.append(attribute.SerializeToString())
    reads_values = node.op_type not in _READS_NO_VALUES or all(name in scope.constants for name in node.input if name)
    for name in node.input:
        shape, is_constant = scope.shape(name), name in scope.constants
        if not name:
            parts.append(None)
        elif shape is None:
            return None
        elif is_constant and reads_values:
            array = scope.array(name)
            if array.size > _MOST_ELEMENTS or array.dtype.hasobject:
                return None
            parts.append((shape, scope.types[name].tensor_type.elem_type, array.tobytes()))
        else:
            parts.append((shape, scope.types[name].tensor_type.elem_type, is_constant))
    return tuple(parts)
