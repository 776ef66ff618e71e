"""What `main` says of each tensor that a kernel makes: under which names it is known, and who reads it."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from math import prod

import tvm
from tvm import relax, tirx

from fusion.passes.rebuild import bindings, call_name, static_shape
from fusion.tensors import fills_bytes, tensor_bytes
from partition.access import is_static
from partition.dataflow import call_arguments, variables
from partition.slices import CONCAT, has_blocks


@dataclass(frozen=True)
class Result:
    """One output of a kernel: number `index` of those of the call bound to `call`."""

    call: relax.Var
    index: int


@dataclass(frozen=True)
class Part:
    """An operand of a concatenation.

    Attributes:
        value: The operand.
        result: The output of a kernel that it is, maybe reshaped; None where no kernel makes it.
        views: Variables of the reshapes between, the operand's last.
    """

    value: relax.Expr
    result: Result | None
    views: tuple[relax.Var, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape in the concatenation."""
        return static_shape(self.value)

    @property
    def bytes(self) -> int:
        """Its size."""
        return tensor_bytes(self.shape, str(self.value.ty.dtype.dtype))


@dataclass
class Graph:
    """`main` of a module.

    Attributes:
        values: What each variable is bound to, in order.
        readers: Variables bound to what reads each variable, one entry for each place.
        returned: Variables that are part of the result.
        operands: What each concatenation joins. One that joins all of another and more joins the other's result.
    """

    mod: tvm.IRModule
    values: dict[relax.Var, relax.Expr] = field(default_factory=dict)
    readers: dict[relax.Var, list[relax.Var]] = field(default_factory=lambda: defaultdict(list))
    returned: set[relax.Var] = field(default_factory=set)
    operands: dict[relax.Var, list[relax.Expr]] = field(default_factory=dict)

    @classmethod
    def read(cls, mod: tvm.IRModule) -> Graph:
        """Return what `mod` says."""
        graph = cls(mod)
        for var, value in bindings(mod["main"]):
            graph.values[var] = value
            for read in variables(value):
                graph.readers[read].append(var)
        graph.returned = set(variables(mod["main"].body.body))
        for var in graph.values:
            if graph.concat_axis(var) is not None:
                graph.operands[var] = graph._nested(var)
        return graph

    def _nested(self, concat: relax.Var) -> list[relax.Expr]:
        operands = self.arguments(concat)
        axis = self.concat_axis(concat)
        for other in reversed(self.operands):
            joined, count = self.arguments(other), len(self.arguments(other))
            if count < 2 or count >= len(self.arguments(concat)) or self.concat_axis(other) != axis:
                continue
            for first in range(len(operands) - count + 1):
                if all(a.same_as(b) for a, b in zip(operands[first : first + count], joined, strict=True)):
                    self.readers[other].append(concat)
                    return [*operands[:first], other, *operands[first + count :]]
        return operands

    def kernel(self, var: relax.Var) -> tirx.PrimFunc | None:
        """Return the PrimFunc of the call that `var` is bound to, if it consists of blocks over static shapes."""
        value = self.values.get(var)
        if value is None or call_name(value) != "call_tir" or len(value.args) != 2:
            return None
        func = self.mod[value.args[0]]
        return func if isinstance(func, tirx.PrimFunc) and has_blocks(func) and is_static(func) else None

    def concat_axis(self, var: relax.Var) -> int | None:
        """Return the axis of the concatenation that `var` is bound to; None where it is something else."""
        func = self.kernel(var)
        axis = None if func is None or func.attrs is None else func.attrs.get(CONCAT)
        if axis is None or not fills_bytes(str(var.ty.dtype.dtype)) or 0 in static_shape(var):
            return None
        return int(axis)

    def part(self, value: relax.Expr) -> Part:
        """Return where an operand comes from."""
        views: list[relax.Var] = []
        var = value
        while isinstance(var, relax.Var) and var in self.values and call_name(self.values[var]) == "reshape":
            views.insert(0, var)
            var = self.values[var].args[0]
        return Part(value, self.result(var), tuple(views))

    def result(self, var: relax.Expr) -> Result | None:
        """Return which kernel's output `var` is."""
        if not isinstance(var, relax.Var):
            return None
        value = self.values.get(var)
        if isinstance(value, relax.TupleGetItem) and isinstance(value.tuple_value, relax.Var):
            return Result(value.tuple_value, int(value.index)) if self.kernel(value.tuple_value) is not None else None
        return Result(var, 0) if self.kernel(var) is not None and isinstance(var.ty, relax.TensorType) else None

    def names(self, result: Result) -> list[relax.Var]:
        """Return the variables that `result` is known under; [] where something reads the kernel's tuple as a whole."""
        if isinstance(result.call.ty, relax.TensorType):
            return [result.call]
        items = self.readers[result.call]
        if result.call in self.returned or not all(isinstance(self.values[i], relax.TupleGetItem) for i in items):
            return []
        return [item for item in items if int(self.values[item].index) == result.index]

    def buffer(self, result: Result) -> tirx.Var:
        """Return the parameter of its kernel that `result` is."""
        func = self.kernel(result.call)
        assert func is not None
        return func.params[len(self.arguments(result.call)) + result.index]

    def arguments(self, var: relax.Var) -> list[relax.Expr]:
        """Return what the kernel called for `var` reads."""
        return call_arguments(self.values[var])


def row_bytes(shape: tuple[int, ...], outer: tuple[int, ...], dtype: str) -> int:
    """Return how many bytes of a slice of this shape lie together in a tensor of shape `outer`."""
    axis = next((axis for axis in reversed(range(len(shape))) if shape[axis] != outer[axis]), 0)
    return tensor_bytes((prod(shape[axis:]),), dtype)
