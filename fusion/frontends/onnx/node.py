"""One ONNX node as its converter sees it: operands, constants, attributes, static shapes and dtypes by position."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import onnx
from onnx import TypeProto
from tvm import relax
from tvm.relax import BlockBuilder, Expr

from fusion.declined import Declined
from fusion.errors import ShapeError
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import FLOATING, Shape, dims_of, dtype_name, known_dims


def axis_error(axis: int, rank: int, *, end: bool = False) -> str:
    """Return why `axis` is none of a tensor's of rank `rank`, "" if it is one; a scalar passes for a row.

    `end` lets it be the rank itself, a place behind the last axis.
    """
    size = max(rank, 1)
    last = size if end else size - 1
    return "" if -size <= axis <= last else f"and must be from {-size} to {last} for a tensor of rank {rank}"


def where_of(proto: onnx.NodeProto) -> str:
    """Return `proto` as errors name it."""
    return f"{proto.op_type} {proto.name or proto.output[0]!r}"


def attribute_of(proto: onnx.NodeProto, name: str, default: Any = None) -> Any:
    """Return an attribute of `proto`, strings decoded, or `default`."""
    for attribute in proto.attribute:
        if attribute.name == name:
            value = onnx.helper.get_attribute_value(attribute)
            if isinstance(value, bytes):
                return value.decode()
            return [v.decode() if isinstance(v, bytes) else v for v in value] if isinstance(value, list) else value
    return default


@dataclass(frozen=True)
class Node:
    """An ONNX node whose inputs are static, native tensors.

    Attributes:
        proto: The node, its inputs renamed to values of `scope`.
        opset: Version of the node's operator set.
        outputs: Type of each output; "" outputs have None.
        scope: The values and constants computed so far.
        builder: Where converters emit bindings.
    """

    proto: onnx.NodeProto
    opset: int
    outputs: tuple[TypeProto | None, ...]
    scope: ValueScope
    builder: BlockBuilder

    @cached_property
    def op(self) -> str:
        """The name of its operator."""
        return str(self.proto.op_type)

    @property
    def where(self) -> str:
        """The node as errors name it."""
        return where_of(self.proto)

    def has(self, index: int) -> bool:
        """Return whether input `index` is given."""
        return index < len(self.proto.input) and self.proto.input[index] != ""

    def x(self, index: int) -> Expr:
        """Return input `index`; declines where it is not given."""
        if not self.has(index):
            raise Declined(f"input {index} is missing")
        return self.scope.expr(self.proto.input[index])

    def reshaped(self, index: int, shape: Shape) -> Expr:
        """Return input `index` in another shape of as many elements."""
        return self.scope.reshaped(self.proto.input[index], shape)

    def xs(self) -> list[Expr]:
        """Return all inputs of a variadic operator."""
        return [self.x(index) for index in range(len(self.proto.input))]

    def const(self, index: int) -> np.ndarray | None:
        """Return the value of input `index`, or None where it is not given; declines where it is not constant."""
        if not self.has(index):
            return None
        if self.proto.input[index] not in self.scope.constants:
            raise Declined(f"input {index} is not constant")
        return self.scope.array(self.proto.input[index])

    def needed_const(self, index: int) -> np.ndarray:
        """Return the value of input `index`; declines where it is not given or not constant."""
        value = self.const(index)
        if value is None:
            raise Declined(f"input {index} is missing")
        return value

    def is_const(self, index: int) -> bool:
        """Return whether input `index` is given and constant."""
        return self.has(index) and self.proto.input[index] in self.scope.constants

    def ints(self, index: int, attribute: str) -> list[int] | None:
        """Return integers that old operator sets keep in `attribute` and newer ones in input `index`; None if in
        neither."""
        value = self.const(index)
        if value is not None:
            return [int(item) for item in value.reshape(-1)]
        given = self.attr(attribute)
        return None if given is None else [int(item) for item in given]

    def known_ints(self, index: int | None, attribute: str = "") -> list[int] | None:
        """Return integers of input `index`, or of `attribute` where there is no such input; None where they are not
        given, or only the run knows them."""
        if index is not None and self.has(index):
            return [int(item) for item in self.needed_const(index).reshape(-1)] if self.is_const(index) else None
        given = self.attr(attribute) if attribute else None
        return given if given is None or isinstance(given, list) else [given]

    def shape(self, index: int) -> Shape:
        """Return the shape of input `index`."""
        shape = self.scope.shape(self.proto.input[index])
        if shape is None:
            raise Declined(f"the shape of input {index} depends on data")
        return shape

    def dims(self, index: int) -> tuple[int | None, ...] | None:
        """Return what is known of the shape of input `index`: None for a size, or for all where the rank is not known
        or there is no such input."""
        if not self.has(index):
            return None
        name = self.proto.input[index]
        shape, kind = self.scope.shape(name), self.scope.types.get(name)
        return shape if shape is not None or kind is None else dims_of(kind)

    def dtype(self, index: int) -> str:
        """Return the dtype of input `index`."""
        return dtype_name(self.scope.types[self.proto.input[index]].tensor_type.elem_type)

    def is_floating(self, index: int) -> bool:
        """Return whether input `index` is known to hold floating-point numbers."""
        kind = self.scope.types.get(self.proto.input[index])
        return kind is not None and kind.tensor_type.elem_type in FLOATING

    def out_shape(self, index: int = 0) -> Shape:
        """Return the shape of output `index`; declines where it depends on data."""
        shape = known_dims(self.outputs[index])
        if shape is None:
            raise Declined("the output shape depends on data")
        return shape

    def out_dtype(self, index: int = 0) -> str:
        """Return the dtype of output `index`."""
        kind = self.outputs[index]
        if kind is None:
            raise Declined(f"output {index} is not asked for")
        return dtype_name(kind.tensor_type.elem_type)

    def wants(self, index: int) -> bool:
        """Return whether output `index` is asked for."""
        return index < len(self.proto.output) and self.proto.output[index] != ""

    def attr(self, name: str, default: Any = None) -> Any:
        """Return an attribute, strings decoded, or `default`."""
        return attribute_of(self.proto, name, default)

    def axis(self, name: str = "axis", default: int = 0, rank: int | None = None) -> int:
        """Return an axis attribute as a number from 0.

        Raises:
            ShapeError: There is no such axis.
        """
        rank = len(self.shape(0)) if rank is None else rank
        axis = int(self.attr(name, default))
        problem = axis_error(axis, rank)
        if problem:
            raise ShapeError(
                f"{self.op} names an axis that its input has not", where=self.where, why=f"{name} is {axis}, {problem}"
            )
        return axis % max(rank, 1)

    def like(self, value: float, index: int = 0) -> Expr:
        """Return a scalar constant of the dtype of input `index`."""
        return relax.const(value, self.dtype(index))

    def emit(self, expr: Expr) -> Expr:
        """Bind `expr` to a variable, so that it is computed once."""
        return self.builder.emit(expr)
