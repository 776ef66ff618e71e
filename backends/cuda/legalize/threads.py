"""What forms of several families share: lines of elements that wait for each other, and loops for threads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from backends.tensorir.emit import Nest, int64

Expr = Any  # a TensorIR expression

FEW_LINES = 1 << 10
"""Fewer threads than keep a device busy."""


@dataclass(frozen=True)
class WaitingLine:
    """The axis along which elements wait for each other: how many lines are before it and behind it, and its steps."""

    before: int
    steps: int
    behind: int

    @classmethod
    def of(cls, shape: Sequence[int], axis: int) -> WaitingLine:
        axis %= len(shape)
        return cls(prod(shape[:axis]), shape[axis], prod(shape[axis + 1 :]))

    @property
    def shape(self) -> tuple[int, int, int]:
        return self.before, self.steps, self.behind


class Threads(Nest):
    """Loops of which each turn of an outermost one is a thread."""

    @contextmanager
    def threads(self, shape: Sequence[int]) -> Iterator[list[Expr]]:
        """Open the loop over the elements of a tensor of this shape; yield the indices of one."""
        with self.loop("thread", prod(shape), ForKind.PARALLEL) as thread:
            yield split(thread, shape)

    def variable(self, name: str, value: Expr) -> Variable:
        """Return a variable of a thread that begins as `value`."""
        buffer = tirx.decl_buffer((1,), str(value.ty.dtype), name, scope="local")
        self.add(tirx.AllocBuffer(buffer))
        made = Variable(self, buffer)
        made.set(value)
        return made


@dataclass(frozen=True)
class Variable:
    """A number that a thread changes."""

    nest: Nest
    buffer: tirx.Buffer

    @property
    def value(self) -> Expr:
        """What it holds."""
        return tirx.BufferLoad(self.buffer, [int64(0)])

    def set(self, value: Expr) -> None:
        """Add the statement that changes it."""
        self.nest.store(self.buffer, [int64(0)], value)


def split(position: Expr, shape: Sequence[int]) -> list[Expr]:
    """Return the indices of a position in row-major order."""
    indices: list[Expr] = []
    for extent in reversed(shape[1:]):
        size = int64(max(extent, 1))
        indices.append(tirx.floormod(position, size))
        position = tirx.floordiv(position, size)
    return [position, *indices[::-1]] if shape else []
