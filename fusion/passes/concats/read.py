"""What `main` says of each tensor that a kernel makes: under which names it is known, and who reads it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

import tvm
from tvm import relax, tirx

from fusion.bindings import Bindings, call_arguments, call_name, callee, is_call_tir
from fusion.shapes import static_shape
from fusion.tensors import fills_bytes, tensor_bytes
from partition.access import is_static
from partition.slices import CONCAT, has_blocks


@dataclass(frozen=True)
class Result:
    """One output of a kernel: number `index` of those of the call bound to `call`."""

    call: relax.Var
    index: int


@dataclass(frozen=True)
class ConcatPart:
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


@dataclass(frozen=True, eq=False)
class ConcatGraph:
    """`main` of a module, and what its concatenations join."""

    mod: tvm.IRModule
    bindings: Bindings

    @classmethod
    def read(cls, mod: tvm.IRModule) -> ConcatGraph:
        """Return what `mod` says."""
        return cls(mod, Bindings.of(mod["main"]))

    @property
    def values(self) -> Mapping[relax.Var, relax.Expr]:
        """What each variable is bound to, in order."""
        return self.bindings.values

    @cached_property
    def operands(self) -> Mapping[relax.Var, Sequence[relax.Expr]]:
        """What each concatenation joins; one that joins all of another and more joins the other's result."""
        found: dict[relax.Var, list[relax.Expr]] = {}
        for var in self.values:
            if self.concat_axis(var) is not None:
                found[var] = self._nested(var, list(found))
        return found

    @cached_property
    def _joined_again(self) -> Mapping[relax.Var, Sequence[relax.Var]]:
        """Concatenations of the result of each one that do not read it."""
        found: dict[relax.Var, list[relax.Var]] = {}
        for var, operands in self.operands.items():
            for operand in set(operands) & self.operands.keys():
                read = sum(operand.same_as(each) for each in self.arguments(var))
                joined = sum(operand.same_as(each) for each in operands)
                found.setdefault(operand, []).extend([var] * (joined - read))
        return found

    def readers(self, var: relax.Var) -> list[relax.Var]:
        """Return the variables bound to what reads `var`, one entry for each place."""
        return [*self.bindings.readers.get(var, ()), *self._joined_again.get(var, ())]

    def _nested(self, concat: relax.Var, earlier: Sequence[relax.Var]) -> list[relax.Expr]:
        operands = self.arguments(concat)
        axis = self.concat_axis(concat)
        for other in reversed(earlier):
            joined, count = self.arguments(other), len(self.arguments(other))
            if count < 2 or count >= len(operands) or self.concat_axis(other) != axis:
                continue
            for first in range(len(operands) - count + 1):
                if all(a.same_as(b) for a, b in zip(operands[first : first + count], joined, strict=True)):
                    return [*operands[:first], other, *operands[first + count :]]
        return operands

    def kernel(self, var: relax.Var) -> tirx.PrimFunc | None:
        """Return the PrimFunc of the call that `var` is bound to, if it consists of blocks over static shapes."""
        value = self.values.get(var)
        if value is None or not is_call_tir(value) or len(value.args) != 2:
            return None
        func = self.mod[callee(value)]
        return func if isinstance(func, tirx.PrimFunc) and has_blocks(func) and is_static(func) else None

    def concat_axis(self, var: relax.Var) -> int | None:
        """Return the axis of the concatenation that `var` is bound to; None where it is something else."""
        func = self.kernel(var)
        axis = None if func is None or func.attrs is None else func.attrs.get(CONCAT)
        if axis is None or not fills_bytes(str(var.ty.dtype.dtype)) or 0 in static_shape(var):
            return None
        return int(axis)

    def part(self, value: relax.Expr) -> ConcatPart:
        """Return where an operand comes from."""
        views: list[relax.Var] = []
        var = value
        while isinstance(var, relax.Var) and var in self.values and call_name(self.values[var]) == "reshape":
            views.insert(0, var)
            var, _ = self.values[var].args
        return ConcatPart(value, self.result(var), tuple(views))

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
        items = self.readers(result.call)
        as_parts = all(isinstance(self.values[item], relax.TupleGetItem) for item in items)
        if result.call in self.bindings.returned or not as_parts:
            return []
        return [item for item in items if int(self.values[item].index) == result.index]

    def results(self, call: relax.Var) -> list[Result]:
        """Return the outputs of the kernel that `call` is bound to a call of."""
        func = self.kernel(call)
        assert func is not None
        return [Result(call, index) for index in range(len(func.params) - len(self.arguments(call)))]

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
