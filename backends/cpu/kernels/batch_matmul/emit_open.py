"""Products of batches of which only a call knows the batch, the rows, the columns or the depth.

    parallel task: (batch, chunk of rows, chunk of columns)     serial where there is little to do
      result = left x right                                     `product_function`
    or, where something is behind the product,
      for block of columns, block of rows
        sums = left x right                                     `product_function`
        outputs = epilogue(sums)

Both operands are read as they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cpu.costs import FMA_PER_CYCLE, REGION_CYCLES
from backends.cpu.kernels.batch_matmul.lower import broadcast_indices
from backends.cpu.kernels.batch_matmul.product_function import ProductCall, ProductFunction
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.lane_runs import DIVISIONS
from backends.cpu.kernels.shared.open_split import OpenSplit, ceil_div
from backends.cpu.machine import Machine
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, int64, ramp, vector_runs
from backends.tensorir.extents import Extent, extent_of
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Output, Roles, read_roles
from backends.tensorir.stages import dims_of, dtype_of, substitute
from fusion.declined import Declined
from fusion.structural import contains, find
from partition.access import BATCH_MATMUL

_ROWS, _VECTORS = 24, 8
"""Rows and vectors of a block of sums at most, which L1 keeps until they are stored."""

_TASKS = 4
"""For each thread, so that all end at about the same time."""

_READ_ROWS = 4
"""To load the right operand takes as long as to multiply so many rows."""

_CHUNK_ROWS, _CHUNK_VECTORS = 12, 4
"""Of a task at least: a panel of the tallest tiles."""


def emit_open_batch_matmul(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of a product of batches with symbols.

    Raises:
        Declined: It is none of float32.
    """
    product, nest = _Batches.of(read_roles(func), machine), Nest()
    nest.call_functions(product.function.llvm_ir)
    images = nest.keep("images", int64(prod(product.batch)))
    if threads == 1:
        product.emit_alone(nest, images)
    else:
        vectors = ceil_div(product.columns, product.lanes)
        cycles = images * (product.rows + _READ_ROWS) * vectors * product.depth // FMA_PER_CYCLE
        nest.choose(
            cycles < 2 * REGION_CYCLES,
            lambda: product.emit_alone(nest, images),
            lambda: product.emit_shared(nest, images, threads),
        )
    return Scheduled(func.with_body(nest.finish()), BATCH_MATMUL, str(product))


@dataclass(frozen=True)
class _Batches:
    """A product of [*batch, rows, depth] and [*batch, depth, columns], either of which may be one for several.

    Attributes:
        pitch: Elements between rows of the result, where sums are stored in it right away; None where something is
            behind them, or they lie otherwise.
    """

    left: Var
    right: Var
    outputs: tuple[Output, ...]
    batch: tuple[Extent, ...]
    rows: Extent
    columns: Extent
    depth: Extent
    pitch: Extent | None
    function: ProductFunction

    @staticmethod
    def of(roles: Roles, machine: Machine) -> _Batches:
        left, right = roles.operands
        if dtype_of(left) != "float32" or dtype_of(right) != "float32":
            raise Declined("its operands are not of float32")
        *batch, rows, columns = roles.shape
        return _Batches(
            left=left, right=right, outputs=roles.outputs, batch=tuple(batch), rows=rows, columns=columns,
            depth=dims_of(left)[-1], pitch=_pitch(roles), function=ProductFunction.of(machine),
        )  # fmt: skip

    @property
    def lanes(self) -> int:
        return self.function.lanes

    @property
    def stride(self) -> int:
        """How far apart rows of sums are."""
        return _VECTORS * self.lanes

    def __str__(self) -> str:
        tiles = ", ".join(f"{rows}x{vectors}v" for vectors, rows in self.function.heights.items())
        return f"{'in place' if self.pitch is not None else 'through sums'}, tiles up to {tiles}"

    def emit_alone(self, nest: Nest, images: Expr) -> None:
        """Emit all images in one thread."""
        sums = self._sums(nest)
        with nest.loop("image", images) as image:
            self._emit(nest, sums, image, (int64(0), int64(self.rows)), (int64(0), int64(self.columns)))

    def emit_shared(self, nest: Nest, images: Expr, threads: int) -> None:
        """Emit tasks that so many threads share."""
        vectors = ceil_div(self.columns, self.lanes)
        rows = _chunks(nest, self.rows, _CHUNK_ROWS, int64(_TASKS * threads), images)
        columns = _chunks(nest, vectors, _CHUNK_VECTORS, int64(_TASKS * threads), images * rows.count)
        with nest.loop("task", images * rows.count * columns.count, ForKind.PARALLEL) as task:
            column, above = tirx.floormod(task, columns.count), tirx.floordiv(task, columns.count)
            row, image = tirx.floormod(above, rows.count), tirx.floordiv(above, rows.count)
            begin = nest.keep("begin", columns.start(column) * self.lanes)
            wide = tirx.min(self.columns - begin, columns.size(column) * self.lanes)
            of_rows = nest.keep("row", rows.start(row)), nest.keep("rows", rows.size(row))
            self._emit(nest, self._sums(nest), image, of_rows, (begin, nest.keep("columns", wide)))

    def _sums(self, nest: Nest) -> Var | None:
        """Return memory for the sums of a block, where there has to be some."""
        return nest.allocate("sums", (_ROWS * self.stride,)) if self.pitch is None else None

    def _emit(
        self, nest: Nest, sums: Var | None, image: Expr, rows: tuple[Expr, Expr], columns: tuple[Expr, Expr]
    ) -> None:
        """Emit a part of an image: each the first and how many."""
        which = [nest.keep(f"batch{axis}", place) for axis, place in enumerate(unravel(image, self.batch))]
        if sums is None:
            (output,) = self.outputs
            indices, _ = output.at([*which, rows[0], columns[0]], tirx.const(0, "float32"))
            result = tirx.BufferLoad(output.buffer, indices)
            nest.add(self._call(which, rows, columns, self.pitch, result))
            return
        across, down = ("column_block", columns, self.stride), ("row_block", rows, _ROWS)
        with _blocks(nest, *across) as of_block, _blocks(nest, *down) as block:
            nest.add(self._call(which, block, of_block, self.stride, tirx.BufferLoad(sums, [int64(0)])))
            self._store(nest, which, sums, block, of_block)

    def _call(
        self, which: Sequence[Expr], rows: tuple[Expr, Expr], columns: tuple[Expr, Expr], pitch: Extent, result: Expr
    ) -> tirx.Stmt:
        """Return the call that stores the sums of a part of an image."""
        sizes = ProductCall(
            rows=rows[1], columns=columns[1], depth=self.depth, left_pitch=self.depth, right_pitch=self.columns,
            pitch=pitch,
        )  # fmt: skip
        left, right = (broadcast_indices(dims_of(operand)[:-2], which) for operand in (self.left, self.right))
        return self.function.call(
            sizes, tirx.BufferLoad(self.left, [*left, rows[0], int64(0)]),
            tirx.BufferLoad(self.right, [*right, int64(0), columns[0]]), result,
        )  # fmt: skip

    def _store(
        self, nest: Nest, which: Sequence[Expr], sums: Var, rows: tuple[Expr, Expr], columns: tuple[Expr, Expr]
    ) -> None:
        """Emit what is behind the product, of a block."""
        epilogue = Epilogue.prepare(nest, self.outputs, self.lanes)

        def place(row: Expr, column: Expr, i: Expr, j: Expr, channel: Expr) -> list[Expr]:
            return [*which, row, column + channel]

        with nest.loop("row_of_block", rows[1]) as i:
            for at, count in self._vectors(nest, columns[1]):
                registers = RegisterRows(nest, 1, [(0, count)])
                registers.write(0, 0, tirx.BufferLoad(sums, [ramp(i * self.stride + at, count)]))
                where = partial(place, rows[0] + i, columns[0] + at)
                epilogue.store(nest, registers, (1, 1), [(0, count)], where)

    def _vectors(self, nest: Nest, columns: Expr) -> Iterator[tuple[Expr, int]]:
        """Yield (first column, lanes) inside a loop over the vectors of so many columns."""
        if not _lanes_may_idle(self.outputs):
            yield from vector_runs(nest, columns, self.lanes)
            return
        with nest.loop("v", ceil_div(columns, self.lanes)) as v, nest.masked(columns - v * self.lanes):
            yield v * self.lanes, self.lanes


@contextmanager
def _blocks(nest: Nest, name: str, part: tuple[Expr, Expr], longest: int) -> Iterator[tuple[Expr, Expr]]:
    """Open the loop over blocks of a part: of each the first and how many."""
    first, many = part
    with nest.loop(name, ceil_div(many, longest)) as block:
        size = tirx.min(many - block * longest, int64(longest))
        yield nest.keep(f"{name}_first", first + block * longest), nest.keep(f"{name}_size", size)


def _chunks(nest: Nest, extent: Extent, least: int, tasks: Expr, others: Expr) -> OpenSplit:
    """Return the cut of `extent` into chunks of at least `least`, so that with `others` as many times there are so many
    tasks."""
    wanted = tirx.floordiv(tasks + (others - 1), tirx.max(others, int64(1)))
    return OpenSplit.into(nest, int64(extent), tirx.min(wanted, ceil_div(extent, least)))


def _pitch(roles: Roles) -> Extent | None:
    """Return how many elements lie between rows of the result where it is the sums, and columns lie together or there
    is one; None elsewhere."""
    if len(roles.outputs) > 1:
        return None
    (output,) = roles.outputs
    if not (isinstance(output.value, Var) and output.value.same_as(output.accumulator)):
        return None
    *_, row, column = output.coordinates
    down, across = (_step(output.buffer, output.indices, place) for place in (row, column))
    depends = contains(down, (Var, lambda var: any(var.same_as(each) for each in output.coordinates)))
    lie_together = extent_of(across) == 1 or roles.shape[-1] == 1
    return extent_of(down) if lie_together and not depends else None


def _lanes_may_idle(outputs: Sequence[Output]) -> bool:
    """Return whether what is behind the product may be computed of anything in lanes past the last column: none loads
    at a place of its own, all store side by side, and no integers are divided."""
    for output in outputs:
        column = output.coordinates[-1]
        steps = [_step(load.source, load.indices, column) for load in find(output.value, TensorLoad)]
        if any(extent_of(step) not in (0, 1) for step in steps):
            return False
        if extent_of(_step(output.buffer, output.indices, column)) != 1:
            return False
        if contains(output.value, (DIVISIONS, lambda _: True)):
            return False
    return True


def _step(buffer: Var, indices: Sequence[Expr], place: Var) -> Expr:
    """Return how many elements further `indices` are where `place` is one further."""
    analyzer, shape = Analyzer(), dims_of(buffer)
    moved = [substitute(index, {place: place + int64(1)}) for index in indices]
    return analyzer.simplify(flat_index(shape, moved, analyzer) - flat_index(shape, list(indices), analyzer))
