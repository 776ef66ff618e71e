"""Products of batches of which only a call knows the batch, the rows, the columns or the depth.

The loops of one task, which has a chunk of the blocks of rows of one batch:

    for block of columns                         balanced, up to 256
      for block of rows                          balanced, up to 16
        sums = left x right                      `block_products`: panels of vectors, single ones, what is left of one
        outputs = epilogue(sums)

Both operands are read as they lie.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.batch_matmul.lower import broadcast_indices
from backends.cpu.kernels.shared.block_products import OpenProduct, Panels, RowUnits, multiply, row_tiles
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.open_split import OpenSplit, ceil_div
from backends.cpu.kernels.shared.register_tile import RegisterTile, choose
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64, ramp, vector_runs
from backends.tensorir.extents import Extent, typical
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Output, Roles, read_roles
from backends.tensorir.stages import dims_of, dtype_of
from backends.tensorir.vectors import load_first
from fusion.declined import Declined
from partition.access import BATCH_MATMUL

_ROWS = 16
"""Rows of a block at most."""
_COLUMNS = 256
"""Columns of a block at most: the sums of 16 rows are 16 KiB, a third of L1."""


def emit_open_batch_matmul(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of a product of batches with symbols.

    Raises:
        Declined: It is none of float32.
    """
    product, nest = _Batches.of(read_roles(func), machine), Nest()
    images = nest.keep("images", int64(prod(product.batch)))
    blocks = OpenSplit.of(nest, int64(product.rows), _ROWS)
    wanted = tirx.floordiv(images + (threads - 1), tirx.max(images, int64(1)))
    chunks = OpenSplit.into(nest, blocks.count, tirx.min(wanted, blocks.count))
    with nest.loop("task", images * chunks.count, ForKind.PARALLEL if threads > 1 else ForKind.SERIAL) as task:
        image, chunk = tirx.floordiv(task, chunks.count), tirx.floormod(task, chunks.count)
        places = unravel(image, product.batch)
        which = [nest.keep(f"batch{axis}", place) for axis, place in enumerate(places)]
        first = nest.keep("first_block", chunks.start(chunk))
        work = _BatchTask(nest, product, which, nest.allocate("sums", (_ROWS * product.stride,)))
        work.emit(blocks, first, nest.keep("blocks", chunks.size(chunk)))
    return Scheduled(func.with_body(nest.finish()), BATCH_MATMUL, str(product))


@dataclass(frozen=True)
class _Batches:
    """A product of [*batch, rows, depth] and [*batch, depth, columns], either of which may be one for several.

    Attributes:
        tile: The largest register tile.
    """

    left: Var
    right: Var
    outputs: tuple[Output, ...]
    batch: tuple[Extent, ...]
    rows: Extent
    columns: Extent
    depth: Extent
    tile: RegisterTile
    lanes: int

    @staticmethod
    def of(roles: Roles, machine: Machine) -> _Batches:
        left, right = roles.operands
        if dtype_of(left) != "float32" or dtype_of(right) != "float32":
            raise Declined("its operands are not of float32")
        *batch, rows, columns = roles.shape
        depth, lanes = dims_of(left)[-1], machine.vector_lanes
        height, width = min(typical(rows), _ROWS), -(-min(typical(columns), _COLUMNS) // lanes)
        tile = choose(max(height, 1), 1, max(width, 1), max(typical(depth), 1), machine.vector_registers)
        return _Batches(
            left=left, right=right, outputs=roles.outputs, batch=tuple(batch), rows=rows, columns=columns, depth=depth,
            tile=tile, lanes=lanes,
        )  # fmt: skip

    @property
    def stride(self) -> int:
        """How far apart rows of sums are."""
        return _COLUMNS + self.lanes

    def __str__(self) -> str:
        return f"up to {_ROWS} rows by {_COLUMNS} columns, {self.tile}"


@dataclass(frozen=True)
class _BatchTask:
    """The work on one batch.

    Attributes:
        which: The batch.
        sums: Of a block of rows and columns.
    """

    nest: Nest
    product: _Batches
    which: Sequence[Expr]
    sums: Var

    def emit(self, blocks: OpenSplit, first: Expr, many: Expr) -> None:
        """Emit `many` blocks of rows from number `first` on."""
        nest, lanes = self.nest, self.product.lanes
        vectors = OpenSplit.of(nest, ceil_div(self.product.columns, lanes), _COLUMNS // lanes)
        with nest.loop("columns", vectors.count) as part:
            first_vector = nest.keep("first_vector", vectors.start(part))
            begin = nest.keep("begin", first_vector * lanes)
            columns = nest.keep("many_columns", tirx.min(self.product.columns - begin, vectors.size(part) * lanes))
            with nest.loop("block", many) as step:
                row = nest.keep("row", blocks.start(first + step))
                rows = nest.keep("rows", blocks.size(first + step))
                self._multiply(row, rows, begin, columns)
                self._store(row, rows, begin, columns)

    def _multiply(self, row: Expr, rows: Expr, begin: Expr, columns: Expr) -> None:
        """Emit the sums of a block: whole panels, then single vectors, then the first elements of one."""
        nest, lanes, panel = self.nest, self.product.lanes, self.product.tile.vectors
        whole = nest.keep("whole", tirx.floordiv(columns, lanes))
        rest = nest.keep("rest", columns - whole * lanes)
        panels = nest.keep("panels", tirx.floordiv(whole, panel))

        def right(vector: Expr, k: Expr, count: int) -> Expr:
            return self._right(k, ramp(begin + vector * lanes, count))

        def store(i: Expr, vector: Expr, total: Expr) -> None:
            nest.store(self.sums, [ramp(i * self.product.stride + vector * lanes, lanes)], total)

        vectors = OpenProduct(
            depth=self.product.depth, left=lambda i, k: self._left(row + i, k), right=right, store=store
        )  # fmt: skip
        last = replace(
            vectors, right=lambda vector, k, count: load_first(self._right(k, begin + vector * lanes), rest, count)
        )
        with row_tiles(nest, rows, RowUnits(self.product.tile.rows)) as tile:
            multiply(nest, vectors, tile, Panels(int64(0), panels, [lanes] * panel))
            if panel > 1:
                multiply(nest, vectors, tile, Panels(panels * panel, whole - panels * panel, [lanes]))
            if not isinstance(self.product.columns, int) or self.product.columns % lanes:
                multiply(nest, last, tile, Panels(whole, tirx.Cast("int64", rest > 0), [lanes]))

    def _store(self, row: Expr, rows: Expr, begin: Expr, columns: Expr) -> None:
        """Emit what is behind the product, of a block."""
        nest, lanes = self.nest, self.product.lanes
        epilogue = Epilogue.prepare(nest, self.product.outputs, lanes)
        with nest.loop("row_of_block", rows) as i:
            for at, count in vector_runs(nest, columns, lanes):
                registers = RegisterRows(nest, 1, [(0, count)])
                registers.write(0, 0, tirx.BufferLoad(self.sums, [ramp(i * self.product.stride + at, count)]))
                epilogue.store(nest, registers, (1, 1), [(0, count)], partial(self._place, row + i, begin + at))

    def _place(self, row: Expr, column: Expr, i: Expr, j: Expr, channel: Expr) -> list[Expr]:
        return [*self.which, row, column + channel]

    def _left(self, row: Expr, k: Expr) -> Expr:
        return tirx.BufferLoad(self.product.left, [*self._batch_of(self.product.left), row, k])

    def _right(self, k: Expr, column: Expr) -> tirx.BufferLoad:
        return tirx.BufferLoad(self.product.right, [*self._batch_of(self.product.right), k, column])

    def _batch_of(self, operand: Var) -> list[Expr]:
        return broadcast_indices(dims_of(operand)[:-2], self.which)
