"""Sums of a block in shared memory: from the registers of warps to neighbours of a row, of which results are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import address, call_device, registers
from backends.cuda.kernels.matmul.cores import Store
from backends.cuda.kernels.registers import Lanes, register
from backends.tensorir.emit import Nest, guard, int64

Expr = Any
_FLOAT_BYTES = 4
_WIDTH = 4
"""Floats of one access."""


@dataclass(frozen=True)
class SumsConsumer:
    """What becomes of the sums.

    Attributes:
        many: Neighbours of a row of sums, a divisor of its length, that a thread takes at once.
        add: Adds what one thread does with them: their row-major position, their lanes, and registers.
    """

    many: int
    add: Callable[[Nest, Expr, Lanes, Var], None]


@dataclass(frozen=True)
class SumsTile:
    """The sums of a block, row by row.

    Attributes:
        rows: Of the tile; so for `columns`.
        padding: Floats behind each row, so that lanes store different rows to different banks.
        extents: Batches, rows and columns of all sums.
    """

    rows: int
    columns: int
    padding: int
    extents: tuple[int, int, int]

    @property
    def line_bytes(self) -> int:
        """Size of a row."""
        return (self.columns + self.padding) * _FLOAT_BYTES

    @property
    def bytes(self) -> int:
        """Size of the tile."""
        return self.line_bytes * self.rows

    def put(self, nest: Nest, shared: Var, row: Expr, column: Expr) -> Store:
        """Return what stores sums of a warp, whose tile begins at a row and a column of this."""

        def store(at_row: Expr, at_column: Expr, sums: tuple[Var, Expr], many: int) -> None:
            at = (row + at_row) * self.line_bytes + (column + at_column) * _FLOAT_BYTES
            call_device(nest, f"put_floats<{many}>", address(shared, at), *sums)

        return store

    def hand_on(
        self, nest: Nest, shared: Var, place: tuple[Var, Expr, Expr], threads: tuple[Var, int], results: SumsConsumer
    ) -> None:
        """Add what takes the sums from shared memory, as neighbours of a row, and makes the results of them.

        Args:
            place: The batch, and which of the tiles of rows and of columns this is.
            threads: The thread and how many there are.
        """

        def take(sums: Var, row: Expr, column: Expr) -> None:
            at = row * self.line_bytes + column * _FLOAT_BYTES
            for lane, width in self._pieces(results.many):
                place = address(shared, at + lane * _FLOAT_BYTES)
                call_device(nest, f"take_floats<{width}>", *registers(sums, lane), place)

        self.finish(nest, take, place, threads, results=results)

    def finish(
        self,
        nest: Nest,
        take: Callable[[Var, Expr, Expr], None],
        place: tuple[Var, Expr, Expr],
        threads: tuple[Var, int],
        *,
        results: SumsConsumer,
    ) -> None:
        """Add what makes the results of sums that `take` puts into registers, from a row and a column of the tile on;
        see `hand_on`."""
        many, (thread, count), (batch, row_tile, column_tile) = results.many, threads, place
        of_row = self.columns // many
        vectors, (batches, rows, columns) = of_row * self.rows, self.extents
        with nest.run("turn", -(-vectors // count)) as turn:
            which = nest.bind("which", turn * count + thread)
            own_row, own_vector = tirx.floordiv(which, int64(of_row)), tirx.floormod(which, int64(of_row))
            row = nest.bind("row", row_tile * self.rows + own_row)
            vector = nest.bind("vector", column_tile * of_row + own_vector)
            is_own = tirx.And(row < rows, vector < columns // many)
            with nest.when(is_own if vectors % count == 0 else tirx.And(which < vectors, is_own)):
                sums = register(nest, "taken", many, "float32")
                take(sums, own_row, own_vector * many)
                begin = (batch * rows + row) * columns + vector * many
                ranges = tuple(zip((batch, row, vector), (batches, rows, columns // many), strict=True))
                results.add(nest, begin, Lanes(Var("lane", "int64"), many, ranges), sums)

    def keep(self, nest: Nest, shared: Var, threads: tuple[Var, int], partial: tuple[Var, Expr]) -> None:
        """Add what stores all sums of the tile, row by row, in a buffer from a position on."""
        (thread, count), vectors = threads, self.rows * self.columns // _WIDTH
        with nest.run("turn", -(-vectors // count)) as turn:
            which = nest.bind("which", turn * count + thread)
            with guard(nest, None if vectors % count == 0 else which < vectors):
                row = tirx.floordiv(which, int64(self.columns // _WIDTH))
                column = tirx.floormod(which, int64(self.columns // _WIDTH)) * _WIDTH
                sums = register(nest, "taken", _WIDTH, "float32")
                at = row * self.line_bytes + column * _FLOAT_BYTES
                call_device(nest, f"take_floats<{_WIDTH}>", *registers(sums, 0), address(shared, at))
                to = address(partial[0], partial[1] + which * _WIDTH)
                call_device(nest, f"put_floats<{_WIDTH}>", to, *registers(sums, 0))

    def add_kept(self, nest: Nest, sums: Var, many: int, partial: tuple[Var, Expr], place: tuple[Expr, Expr]) -> None:
        """Add to sums in registers those of a tile that `keep` stored from a position on, at a row and a column."""
        row, column = place
        for lane, width in self._pieces(many):
            taken = register(nest, "kept", width, "float32")
            at = partial[1] + row * self.columns + column + lane
            call_device(nest, f"take_floats<{width}>", *registers(taken, 0), address(partial[0], at))
            with nest.run("element", width, ForKind.UNROLLED) as element:
                total = tirx.BufferLoad(sums, [lane + element]) + tirx.BufferLoad(taken, [element])
                nest.store(sums, [lane + element], total)

    def _pieces(self, many: int) -> list[tuple[int, int]]:
        """Return of so many neighbours where each access begins, and how many floats it brings."""
        width = _WIDTH if many % _WIDTH == 0 else 1
        return [(lane, width) for lane in range(0, many, width)]
