"""Copies of an operand of a product in whole vectors, where only a call knows how many rows or columns there are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.attention.read import Operand
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.kernels.shared.stitching.transpose_writer import turn_square
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat
from backends.tensorir.extents import Extent
from backends.tensorir.vectors import load_first

_FEW = (4, 8)
"""Places of a vector up to which each is spread over it, by so many loads, and none are turned as a square: 16 texts
of one word took 55 us in squares, and of seven texts of five words these were two fifths of 30."""


@dataclass(frozen=True)
class Packed:
    """An operand in vectors of neighbouring places, one for each step.

    Attributes:
        buffer: Holds them.
        vector, step: How far apart vectors of neighbouring places are, and those of neighbouring steps, in elements.
    """

    buffer: Var
    vector: int
    step: int

    def at(self, vector: Expr, step: Expr) -> Expr:
        """Return the position of the first element of a vector."""
        return int64(vector) * self.vector + int64(step) * self.step

    def load(self, vector: Expr, step: Expr, count: int) -> Expr:
        """Return the first `count` elements of a vector."""
        return tirx.BufferLoad(self.buffer, [ramp(self.at(vector, step), count)])


def pack(nest: Nest, operand: Operand, batch: Sequence[Expr], packed: Packed, lanes: int) -> None:
    """Add the copy of one batch of an operand."""
    packing = _Packing(nest, operand, batch, packed, lanes)
    if operand.is_contiguous(operand.place):
        packing.copied()
    elif operand.is_contiguous(operand.step):
        packing.turned()
    else:
        packing.scattered()


@dataclass(frozen=True)
class _Packing:
    """Writes one copy."""

    nest: Nest
    operand: Operand
    batch: Sequence[Expr]
    packed: Packed
    lanes: int

    @property
    def steps(self) -> Extent:
        """How many there are of k."""
        return self.operand.step.extent

    @property
    def places(self) -> Extent:
        """How many rows or columns there are."""
        return self.operand.place.extent

    @property
    def vectors(self) -> Expr:
        """How many hold the places."""
        return ceil_div(self.places, self.lanes)

    def copied(self) -> None:
        """Add vectors as they lie; behind the last place are zeros."""
        nest, lanes = self.nest, self.lanes
        whole = nest.keep("whole", tirx.floordiv(int64(self.places), lanes))
        with nest.loop("vector", whole) as vector, nest.loop("k", self.steps) as k:
            self._store(vector, k, self.operand.at(self.batch, ramp(vector * lanes, lanes), k))
        rest = nest.keep("rest", int64(self.places) - whole * lanes)
        with nest.when(rest > 0), nest.loop("k", self.steps) as k:
            self._store(whole, k, load_first(self.operand.at(self.batch, whole * lanes, k), rest, lanes))

    def turned(self) -> None:
        """Emit vectors of places that lie apart; places behind the last are the last one once more."""
        nest, lanes = self.nest, self.lanes
        few = [many for many in _FEW if many < lanes]
        whole = nest.keep("whole", tirx.floordiv(int64(self.places), lanes))
        rest = nest.keep("rest", int64(self.places) - whole * lanes)
        self._turned(nest.keep("squares", whole + tirx.Select(rest > max(few, default=0), int64(1), int64(0))))
        for below, many in zip((0, *few), few, strict=False):
            with nest.when(tirx.all(rest > below, rest <= many)):
                self._blended(whole, rest, many)

    def _blended(self, vector: Expr, rest: Expr, many: int) -> None:
        """Emit a vector of up to `many` places, each spread over the lanes from its own on, a step at a time."""
        nest, lanes = self.nest, self.lanes
        places = [nest.keep(f"place{lane}", vector * lanes + tirx.min(lane, rest - 1)) for lane in range(many)]
        with nest.loop("k", self.steps) as k:
            found = None
            for lane, place in enumerate(places):
                element = splat(self.operand.at(self.batch, place, k), lanes)
                is_own = ramp(0, lanes) >= splat(int64(lane), lanes)
                found = element if found is None else tirx.Select(is_own, element, found)
            self._store(vector, k, found)

    def _turned(self, vectors: Expr) -> None:
        """Emit squares that are turned in registers."""
        nest, lanes, steps = self.nest, self.lanes, self.steps
        whole = steps // lanes if isinstance(steps, int) else tirx.floordiv(steps, lanes)
        with nest.loop("block", whole) as block:
            self._squares(block * lanes, vectors)
        if not isinstance(steps, int) or steps % lanes:
            self._scattered(vectors, whole * lanes, steps - whole * lanes)

    def _squares(self, first: Expr, vectors: Expr) -> None:
        """Emit the squares of `lanes` steps from `first` on."""
        nest, lanes = self.nest, self.lanes
        with nest.loop("vector", vectors) as vector:
            rows = []
            for j in range(lanes):
                place = tirx.min(vector * lanes + j, int64(self.places) - 1)
                load = self.operand.at(self.batch, place, ramp(first, lanes))
                row = nest.allocate(f"row{j}", (lanes,))
                nest.store(row, [ramp(0, lanes)], load)
                rows.append(tirx.BufferLoad(row, [ramp(0, lanes)]))
            for i, column in enumerate(turn_square(nest, rows, lanes)):
                self._store(vector, first + i, column)

    def scattered(self) -> None:
        """Emit single elements."""
        self._scattered(self.vectors, 0, self.steps)

    def _scattered(self, vectors: Expr, first: Expr, many: Expr) -> None:
        """Emit single elements of `many` steps from `first` on."""
        nest, lanes = self.nest, self.lanes
        with nest.loop("vector", vectors) as vector, nest.loop("k", many) as k, nest.loop("lane", lanes) as lane:
            place = tirx.min(vector * lanes + lane, int64(self.places) - 1)
            element = self.operand.at(self.batch, place, first + k)
            nest.store(self.packed.buffer, [self.packed.at(vector, first + k) + lane], element)

    def _store(self, vector: Expr, k: Expr, value: Expr) -> None:
        self.nest.store(self.packed.buffer, [ramp(self.packed.at(vector, k), self.lanes)], value)
