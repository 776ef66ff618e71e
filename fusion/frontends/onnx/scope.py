"""The values of a graph under translation: types, constants and Relax expressions by name."""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from onnx import NodeProto, TensorProto, TypeProto, numpy_helper
from tvm.relax import Expr
from tvm.relax.op import reshape

from fusion.frontends.onnx.fold_cost import Budget
from fusion.frontends.onnx.sizes_read import SizesRead
from fusion.frontends.onnx.types import Shape, known_dims, type_of_tensor
from fusion.frontends.onnx.weights import Weights, constant


@dataclass
class ValueScope:
    """What is known of each value so far.

    Attributes:
        types: Type of every value, as exact as inference makes it.
        constants: Values known before the run.
        exprs: Values that `main` has computed.
        claimed: Values whose shape only the model's declaration tells: where ONNX Runtime computes them, the run checks
            it; nothing else may rely on it.
        unsure: Those, and values whose inferred shape rests on them; it holds where they themselves are computed.
        opened_by: Of values whose shape only a run knows: the node with which that begins, as errors name it.
        budget: What may still be spent on constants, in the whole model.
        sizes_read: Told of what is computed of sizes, in the whole model.
        materialize: Called with the name of a value that is neither, to compute it.
        made: The nodes that compute constants which operators made of sizes, and the operator set; none where such are
            constants for all that reads them.
        make: Called with the name of one of them, to compute it as far as there are converters.
    """

    types: dict[str, TypeProto] = field(default_factory=dict)
    constants: dict[str, TensorProto] = field(default_factory=dict)
    exprs: dict[str, Expr] = field(default_factory=dict)
    claimed: set[str] = field(default_factory=set)
    unsure: set[str] = field(default_factory=set)
    opened_by: dict[str, str] = field(default_factory=dict)
    budget: Budget = field(default_factory=Budget)
    sizes_read: SizesRead = field(default_factory=SizesRead)
    materialize: Callable[[str], None] = field(default=lambda name: None)
    made: dict[str, tuple[NodeProto, int]] = field(default_factory=dict)
    make: Callable[[str], None] = field(default=lambda name: None)
    _arrays: dict[str, np.ndarray] = field(default_factory=dict, init=False)
    _shapes: dict[str, tuple[TypeProto, Shape]] = field(default_factory=dict, init=False)
    _weights: Weights = field(default_factory=Weights, init=False)

    def add_constant(self, name: str, tensor: TensorProto, array: np.ndarray | None = None) -> None:
        """Record that the value `name` is `tensor`, which is `array` if that is given."""
        self.constants[name] = tensor
        self.types[name] = type_of_tensor(tensor)
        if array is not None:
            self._arrays[name] = array

    def add_types(self, types: Mapping[str, TypeProto], shapes: Sequence[Shape] = ()) -> None:
        """Record the types of values, and in the same order the shapes that are known of them."""
        self.types.update(types)
        for (name, kind), shape in zip(types.items(), shapes, strict=False):
            self._shapes[name] = kind, shape

    def add_weights(self, weights: Weights) -> None:
        """Record the values that `weights` are."""
        self._weights = weights
        self._arrays.update(weights.arrays)
        self.constants.update(weights.protos)
        self.types.update(weights.types)

    def shape(self, name: str) -> Shape | None:
        """Return the shape of a value; None unless it is a tensor of which every dimension is known. It is read of each
        type once: protobuf takes as long to tell five sizes as a converter takes for a node."""
        kind = self.types.get(name)
        if kind is None:
            return None
        before = self._shapes.get(name)
        if before is not None and before[0] is kind:
            return before[1]
        shape = known_dims(kind)
        if shape is not None:  # of other types converters say more
            self._shapes[name] = kind, shape
        return shape

    def note_open(self, node: NodeProto, where: str) -> None:
        """Record of what `node` makes, which errors name `where`, with which node it begins that only a run knows the
        shape."""
        maker = next((self.opened_by[name] for name in node.input if name in self.opened_by), where)
        self.opened_by.update({name: maker for name in node.output if name and self.shape(name) is None})

    def beside(self) -> ValueScope:
        """Return a scope that begins with these types and constants, and computes none of these values."""
        other = ValueScope(types=dict(self.types), constants=dict(self.constants))
        other._weights, other._arrays = self._weights, dict(self._arrays)
        return other

    def tensor(self, name: str) -> TensorProto:
        """Return the constant `name` with its data."""
        return self._weights.tensor(name) if name in self._weights.protos else self.constants[name]

    def array(self, name: str) -> np.ndarray:
        """Return the constant `name` as an array; the caller does not write to it."""
        if name not in self._arrays:
            self._arrays[name] = numpy_helper.to_array(self.constants[name])
        return self._arrays[name]

    def expr(self, name: str) -> Expr:
        """Return the value `name` as an operand."""
        if name not in self.exprs and name not in self.constants:
            self.materialize(name)
        if name not in self.exprs and name in self.made:
            self.make(name)
        if name not in self.exprs:
            is_weight = name in self._weights.arrays
            self.exprs[name] = self._weights.operand(name) if is_weight else constant(self.array(name))
        return self.exprs[name]

    def reshaped(self, name: str, shape: Shape) -> Expr:
        """Return the value `name` in another shape of as many elements, as an operand; a constant is one as it is."""
        if name in self._weights.arrays:
            return self._weights.operand(name, shape)
        return constant(self.array(name).reshape(shape)) if name in self.constants else reshape(self.expr(name), shape)


def identifier(name: str) -> str:
    """Return `name` with everything but letters, digits and underscores replaced, fit for a variable of Relax and of
    its source."""
    clean = re.sub(r"\W", "_", name, flags=re.ASCII)
    return clean if clean.isidentifier() and not keyword.iskeyword(clean) else f"v{clean}"
