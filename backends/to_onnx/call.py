"""One call of a Relax operator as a converter sees it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import numpy as np
import tvm
from onnx import TensorProto, helper
from tvm import relax, tirx

from backends.to_onnx.graph import WrittenGraph
from fusion.bindings import call_name
from fusion.declined import Declined
from fusion.shapes import dims_of, known_extents
from fusion.tensors import numpy_dtype


@dataclass(frozen=True)
class ExportedCall:
    """A call, and the graph that gets nodes for it.

    Attributes:
        graph: Where nodes go.
        call: The call.
        result: Its type.
        name: Of the value that it is bound to; nodes for what comes before have names that begin with it.
        inputs: What its operands that are tensors, or tuples of them, are called, in order.
        kinds: Their types.
    """

    graph: WrittenGraph
    call: relax.Call
    result: relax.Type
    name: str
    inputs: tuple[str, ...]
    kinds: tuple[relax.Type, ...]

    @property
    def operator(self) -> str:
        return call_name(self.call)

    def attr(self, name: str) -> Any:
        """Return an attribute of the call as Python has it: a number, a text, None, or a tuple of them."""
        return plain(getattr(self.call.attrs, name))

    def numbers(self, position: int) -> list[int]:
        """Return the extents that an operand which is a shape, or a tuple of numbers, has.

        Raises:
            Declined: Only a call knows them.
        """
        found = self.call.args[position]
        items = found.values if isinstance(found, relax.ShapeExpr) else getattr(found, "fields", None)
        if items is None or not all(isinstance(item, tirx.IntImm) for item in items):
            raise Declined("only a call knows its sizes")
        return [int(item) for item in items]

    def number(self, position: int) -> int | float:
        """Return an operand that is a number.

        Raises:
            Declined: Only a call knows it.
        """
        found = self.call.args[position]
        if isinstance(found, tirx.IntImm):
            return int(found.value)
        if isinstance(found, tirx.FloatImm):
            return float(found.value)
        raise Declined("only a call knows one of its numbers")

    def shape(self, position: int) -> tuple[int, ...]:
        """Return the shape of an input.

        Raises:
            Declined: Only a call knows it.
        """
        return shape_of(self.kinds[position])

    def rank(self, position: int) -> int:
        """Return the number of axes of an input.

        Raises:
            Declined: Only a call knows it.
        """
        dims = dims_of(self.kinds[position].shape)
        if dims is None:
            raise Declined("only a call knows the rank of an operand")
        return len(dims)

    def dtype(self, position: int) -> str:
        """Return the dtype of an input."""
        return dtype_of(self.kinds[position])

    def emit(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node with one output; return what that is called."""
        return self.emit_several(operator, inputs, 1, **attributes)[0]

    def emit_several(self, operator: str, inputs: Sequence[str], count: int, **attributes: Any) -> list[str]:
        """Add a node with `count` outputs; return what they are called."""
        outputs = [self.graph.names.make(f"{self.name}.{operator}") for _ in range(count)]
        self.graph.emit(operator, inputs, outputs, **attributes)
        return outputs

    def ints(self, values: Sequence[int]) -> str:
        """Return the name of a constant vector of int64."""
        return self.graph.constant(np.asarray(values, np.int64).reshape(-1), "ints")

    def scalar(self, value: float, dtype: str) -> str:
        """Return the name of a constant of rank 0."""
        return self.graph.constant(np.asarray(value).astype(numpy_dtype(dtype)), "scalar")

    def cast(self, value: str, dtype: str) -> str:
        """Return `value` as another dtype."""
        return self.emit("Cast", value, to=element_type(dtype))

    def reshape(self, value: str, shape: Sequence[int]) -> str:
        """Return `value` under another shape, all of which is known; 0 is a size in it."""
        return self.emit("Reshape", value, self.ints(shape), allowzero=1 if 0 in shape else None)

    def transpose(self, value: str, axes: Sequence[int]) -> str:
        """Return `value` with its axes in another order."""
        return value if list(axes) == list(range(len(axes))) else self.emit("Transpose", value, perm=list(axes))


Convert = Callable[[ExportedCall], "str | Sequence[str]"]
"""Adds the nodes for a call, and returns what its result, or each field of it, is called.

Raises Declined where ONNX has nothing for it.
"""


def node(operator: str, renamed: Mapping[str, str] = MappingProxyType({}), **fixed: Any) -> Convert:
    """Return what writes a call as one node.

    Args:
        operator: ONNX's name.
        renamed: Attributes of the node, and those of the call that they are.
        fixed: Other attributes of the node.
    """

    def convert(site: ExportedCall) -> str:
        attributes = {new: site.attr(old) for new, old in renamed.items()}
        return site.emit(operator, *site.inputs, **attributes, **fixed)

    return convert


def plain(value: Any) -> Any:
    """Return an attribute as Python has it."""
    if isinstance(value, tirx.IntImm):
        return int(value.value)
    if isinstance(value, tirx.FloatImm):
        return float(value.value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, tvm.ir.StringImm):
        return str(value.value)
    try:
        return tuple(plain(item) for item in value)
    except TypeError:
        return str(value)


def shape_of(kind: relax.Type) -> tuple[int, ...]:
    """Return the shape of a tensor of a type.

    Raises:
        Declined: Only a call knows it.
    """
    found = known_extents(kind.shape) if isinstance(kind, relax.TensorType) else None
    if found is None:
        raise Declined("only a call knows its shape")
    return found


def dtype_of(kind: relax.Type) -> str:
    """Return the dtype of a tensor of a type."""
    return str(kind.dtype.dtype) if isinstance(kind.dtype, tvm.ir.PrimType) else str(kind.dtype)


def element_type(dtype: str) -> int:
    """Return ONNX's number of a dtype.

    Raises:
        Declined: It has none.
    """
    try:
        found = helper.np_dtype_to_tensor_dtype(numpy_dtype(dtype))
    except (KeyError, TypeError, ValueError) as error:
        raise Declined(f"ONNX has no {dtype}") from error
    if found == TensorProto.UNDEFINED:
        raise Declined(f"ONNX has no {dtype}")
    return int(found)


def axes_of(axes: Sequence[int] | int | None, rank: int) -> list[int]:
    """Return axes counted from the first, in order; all of them for None."""
    if axes is None:
        return list(range(rank))
    return sorted(axis % rank if rank else axis for axis in ([axes] if isinstance(axes, int) else axes))
