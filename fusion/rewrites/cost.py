"""The cost of a graph. The same function counts it before and after a rewrite."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import prod
from typing import NamedTuple

from fusion.operators import OPERATORS, Operator, OperatorKind, of_kind
from fusion.rewrites.graph import CONSTANT, Value
from fusion.tensors import tensor_bytes


class GraphCost(NamedTuple):
    """The cost that a rewrite has to lower.

    Attributes:
        bytes: Bytes that the operators read and write, each as a kernel of its own; constants do not count.
        flops: Arithmetic operations, weighted by `Operator.flops` where they take several instructions.
        operators: The number of operators, each of which takes time to compile.
    """

    bytes: int
    flops: int
    operators: int

    def pays_against(self, before: GraphCost) -> bool:
        """Return whether bytes and flops do not rise, and the cost falls."""
        return self.bytes <= before.bytes and self.flops <= before.flops and self < before


_VIEWS = of_kind(OperatorKind.RESHAPE) | {"get", "tuple", "alias"}


def cost(values: Iterable[Value]) -> GraphCost:
    """Return the cost of `values` together."""
    found = [_of(value) for value in values if value.op]
    return GraphCost(*map(sum, zip(*found, strict=True))) if found else GraphCost(0, 0, 0)


def _of(value: Value) -> GraphCost:
    if value.op in _VIEWS:
        return GraphCost(0, 0, 1)
    if value.op == "nn.batch_norm":  # a difference, a quotient, a product and a sum of its first operand
        return GraphCost(8 * _size(value.data), 7 * prod(value.data.shape), 4)
    tensors = dict.fromkeys((value, *_operands(value)))
    return GraphCost(sum(_size(tensor) for tensor in tensors if tensor.op != CONSTANT), _flops(value), 1)


def _operands(value: Value) -> Iterator[Value]:
    """Yield the operands of an operator, and for a tuple among them, its fields."""
    for arg in value.args:
        yield from arg.args if arg.op == "tuple" else (arg,)


def _size(value: Value) -> int:
    return tensor_bytes(tuple(value.shape), value.dtype) if value.dtype in _TENSORS else 0


_TENSORS = frozenset(
    ("bfloat16", "float16", "float32", "float64", "bool", "int8", "uint8", "int16", "int32", "int64")
)


def _flops(value: Value) -> int:
    elements = prod(value.shape)
    if value.op == "matmul":
        return 2 * elements * value.data.shape[-1]
    if value.op.startswith("nn.conv"):
        data, weight = value.args[:2]
        transposed = "transpose" in value.op
        return 2 * prod(data.shape if transposed else value.shape) * prod(weight.shape[1:])
    row = OPERATORS.get(value.op, _UNKNOWN)
    return row.flops * (prod(value.data.shape) if row.kind is OperatorKind.REDUCTION else elements)


_UNKNOWN = Operator(OperatorKind.CALL)
"""For operators without a row, such as those that a Relax module of a user calls."""
