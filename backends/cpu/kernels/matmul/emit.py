"""Matmuls that share their left operand as one kernel, which may make the rows of that operand too.

The loops of one task, which has a chunk of the rows and a share of the panels of each product:

    for block of rows                              where the kernel makes them
      rows = normalise(x), scale(x), transpose(x)  the loops that `stitching` writes
      rows = epilogue(x x weights)                 or those of other products: the first layer of an MLP
    for product                                    queries, keys, values
      for block of panels, y tile, panel           `contraction`
        outputs = epilogue(rows x weights)

The rows of a task never leave its core, and a panel of a later product may read what an earlier one left behind, as the
gate of a SwiGLU is read.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.sym import Analyzer

from backends.cpu.kernels.matmul.plan import block_rows, block_tile
from backends.cpu.kernels.matmul.read import PackedProduct, RowProducts
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, emit, emit_inside
from backends.cpu.kernels.shared.packed_tiles import InTiles
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.stitching.loops import stitch
from backends.cpu.machine import Machine
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, int64, ramp, vector_runs
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Output
from backends.tensorir.rows import RowBlock
from backends.tensorir.stages import shape_of
from fusion.structural import map_nodes
from partition.access import MATMUL


def emit_products(func: tirx.PrimFunc, parts: RowProducts, machine: Machine, point: Blocking) -> Scheduled:
    """Return the loops of a point, whose parameters are those of `Blocking`, for all products together."""
    nest = Nest()
    for buffer in parts.held:
        nest.add(tirx.AllocBuffer(buffer))
    works = [rows_times(parts.rows, p.packed, p.channels, p.outputs, machine) for p in parts.products]
    prologue = RowMaker.of(parts, point, machine).fill if parts.makes_rows else None
    panels = [product.packed for product in parts.products]
    if not point.in_tiles or not _packed_before(parts).isdisjoint(panels):
        emit(nest, works, point, prologue, parts.alike)
        return Scheduled(func.with_body(nest.finish()), MATMUL, str(point))
    tiles = InTiles.of(works, panels)
    emit(nest, tiles.works, point, prologue, parts.alike)
    return tiles.scheduled(func, nest.finish(), MATMUL, str(point))


def _packed_before(parts: RowProducts) -> set[Var]:
    """Return the matrices of the products that make the rows."""
    first = parts.first
    return set() if first is None else {product.packed for product in first.products} | _packed_before(first)


@dataclass(frozen=True)
class Room:
    """Where rows are put: `stride` elements apart, the first of them at row `first` of a buffer."""

    buffer: Var
    first: Expr
    stride: int

    @staticmethod
    def of(nest: Nest, name: str, rows: Expr, width: int, machine: Machine) -> Room:
        """Return room for rows that lie apart by no power of two, which would share a few sets of L1."""
        stride = width + machine.vector_lanes
        return Room(nest.allocate(name, (rows * stride,)), int64(0), stride)

    def load_from(self, first: Expr) -> Callable[..., Expr]:
        """Return how an element is loaded where the rows are those from `first` on."""
        return lambda outer, group, y, x, taps, k: tirx.BufferLoad(self.buffer, [self.at(y - first, k)])

    def at(self, row: Expr, column: Expr) -> Expr:
        return (self.first + row) * self.stride + column


@dataclass(frozen=True)
class RowMaker:
    """Makes the rows of a task.

    Attributes:
        longest: Rows of the largest task, a number or an expression.
        block: Rows that are made at a time.
        is_least: Whether no task has fewer; otherwise those of a smaller one are made one by one.
    """

    parts: RowProducts
    machine: Machine
    longest: Expr
    block: int
    is_least: bool = True

    @staticmethod
    def of(parts: RowProducts, point: Blocking, machine: Machine) -> RowMaker:
        """Return the producer for tasks of `point`."""
        tiles = Split.of(parts.height, point.tile.height)
        least, longest = Split(tiles.count, point.row_chunks).short * tiles.short, point.longest_task(parts.height)
        # Blocks of one size, of which the last overlaps the one before by as little as can be.
        even = Split.of(longest, block_rows(parts, machine)).longest
        return RowMaker(parts, machine, longest, min(least, even))

    def fill(self, nest: Nest, outer: Expr, first: Expr, end: Expr) -> Callable[..., Expr]:
        """Add what makes rows first..end-1; return how an element is loaded."""
        made = Room.of(nest, "rows", self.longest, self.parts.depth, self.machine)
        if self.is_least or self.block == 1:
            self._blocks(nest, made, first, end)
        else:
            one_by_one = replace(self, block=1)
            nest.choose(
                end - first >= self.block,
                lambda: self._blocks(nest, made, first, end),
                lambda: one_by_one._blocks(nest, made, first, end),
            )
        return made.load_from(first)

    def _blocks(self, nest: Nest, made: Room, first: Expr, end: Expr) -> None:
        """Add the loop over blocks of rows, of which the last begins where it ends with the rows."""
        with nest.loop("block", tirx.floordiv(end - first + (self.block - 1), self.block)) as index:
            start = nest.bind("start", tirx.min(first + index * self.block, end - self.block))
            self._make(nest, self.parts, start, replace(made, first=start - first))

    def _make(self, nest: Nest, parts: RowProducts, start: Var, place: Room) -> None:
        """Add what makes the block of rows that begins at `start`."""
        if parts.first is None:
            self._stages(nest, parts, start, place)
            return
        first = parts.first
        held = {
            buffer: Room.of(nest, buffer.name, self.block, shape_of(buffer)[-1], self.machine) for buffer in first.held
        }
        left = self._left(nest, first, start)
        for product in first.products:
            work = rows_times(first.rows, product.packed, product.channels, product.outputs, self.machine)
            outputs = tuple(put(output, product, start, {**held, parts.rows: place}) for output in product.outputs)
            block = replace(
                work, extents=replace(work.extents, height=self.block), load_rows=left,
                coordinates=_moved(work, start), outputs=outputs,
            )  # fmt: skip
            emit_inside(nest, block, block_tile(block.extents, self.machine))

    def _left(self, nest: Nest, parts: RowProducts, start: Var) -> Callable[..., Expr]:
        """Return how an element of a block's rows is loaded, made where the kernel makes them."""
        if parts.makes_rows:
            made = Room.of(nest, "rows_before", self.block, parts.depth, self.machine)
            self._make(nest, parts, start, made)
            return lambda outer, group, y, x, taps, k: tirx.BufferLoad(made.buffer, [made.at(y, k)])
        lead = shape_of(parts.rows)[:-1]
        return lambda outer, group, y, x, taps, k: tirx.BufferLoad(parts.rows, [*unravel(start + y, lead), k])

    def _stages(self, nest: Nest, parts: RowProducts, start: Var, place: Room) -> None:
        """Add the stages before the products, over a block of rows."""
        *lead, depth = shape_of(parts.rows)
        stages, local = RowBlock(start, self.block, parts.height).restrict(parts.before)
        memory = nest.allocate("block_rows", (self.block * depth,))
        nest.add(stitch(stages, {local[parts.rows]: memory}, self.machine))
        with nest.loop("row", self.block) as row:
            for at, lanes in vector_runs(nest, depth, self.machine.vector_lanes):
                value = tirx.BufferLoad(memory, [ramp(row * depth + at, lanes)])
                nest.store(place.buffer, [ramp(place.at(row, at), lanes)], value)
                if parts.kept:
                    nest.store(parts.rows, [*unravel(start + row, lead), ramp(at, lanes)], value)


def _moved(work: Contraction, start: Expr) -> Callable[..., list[Expr]]:
    """Return the coordinates of an element of a block of rows that begins at `start`."""
    return lambda outer, group, y, x, n: work.coordinates(outer, group, start + y, x, n)


def put(output: Output, product: PackedProduct, start: Expr, places: Mapping[Var, Room]) -> Output:
    """Return `output` of a block of rows that begins at `start`, stored in and read from the block's own memory."""
    *row, column = output.coordinates
    at = flat_index(product.shape[:-1], row, Analyzer()) - start

    def own(load: TensorLoad) -> Expr:
        place = places.get(load.source)
        return load if place is None else tirx.BufferLoad(place.buffer, [place.at(at, column)])

    place = places[output.buffer]
    value = map_nodes(output.value, (TensorLoad, own))
    return replace(output, buffer=place.buffer, indices=(place.at(at, column),), value=value)
