"""What a model computes of sizes while it is imported, as far as sizes between two at which that is the same may make
something else of it."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto

_RESTS = frozenset({"Mod", "BitShift", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitwiseNot"})
_FEW = 4
"""Of more numbers none is what one size may be."""


@dataclass
class SizesRead:
    """What nodes say that were computed while importing, in the whole model.

    Attributes:
        names: Values made of sizes.
        divided: Those of a division, and what follows from these.
        is_uneven, asked_for: As in `ImportedModel`.
    """

    names: set[str] = field(default_factory=set)
    divided: set[str] = field(default_factory=set)
    is_uneven: bool = False
    asked_for: set[int] = field(default_factory=set)

    def note_size(self, node: NodeProto, known: Collection[str]) -> None:
        """Note a Shape or Size, unless it is that of one of the `known` values, as how many sizes there are."""
        if node.input[0] not in known:
            self.names.update(node.output)

    def note(self, node: NodeProto, array: Callable[[str], np.ndarray]) -> None:
        """Note a node that was computed of constants, which `array` tells by their names."""
        if self.names.isdisjoint(node.input):
            return
        of_sizes = [name in self.names for name in node.input if name]
        inputs = [array(name) for name in node.input if name]
        self.names.update(node.output)
        if node.op_type == "Div" or not self.divided.isdisjoint(node.input):
            self.divided.update(node.output)
        if node.op_type == "Equal":
            self.asked_for.update(
                int(number) for array, of_size in zip(inputs, of_sizes, strict=True)
                for number in (array.flat if not of_size and array.size <= _FEW else ()) if number > 1
            )  # fmt: skip
        is_rest = node.op_type == "Sub" and not self.divided.isdisjoint(node.input)
        self.is_uneven |= node.op_type in _RESTS or is_rest or (node.op_type == "Equal" and all(of_sizes))
