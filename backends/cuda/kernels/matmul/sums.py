"""Sums of a block in shared memory: from the registers of warps to neighbours of a row, of which results are made."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import address, call_device, registers
from backends.cuda.kernels.matmul.cores import Store
from backends.cuda.kernels.registers import Lanes, register
from backends.tensorir.emit import Nest, int64

Expr = Any
_FLOAT_BYTES = 4


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
                at = own_row * self.line_bytes + own_vector * (many * _FLOAT_BYTES)
                width = 4 if many % 4 == 0 else 1
                for lane in range(0, many, width):
                    call_device(
                        nest, f"take_floats<{width}>", *registers(sums, lane), address(shared, at + lane * _FLOAT_BYTES)
                    )
                begin = (batch * rows + row) * columns + vector * many
                ranges = tuple(zip((batch, row, vector), (batches, rows, columns // many), strict=True))
                results.add(nest, begin, Lanes(Var("lane", "int64"), many, ranges), sums)
