"""The loops of an elementwise region of which an operand is turned in shared memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Var

from backends.cuda.codegen.device_functions import barrier
from backends.cuda.kernels.affine import analyzer_below
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.registers import register
from backends.cuda.kernels.transposes.read import TransposedRegion, read_transpose
from backends.cuda.kernels.transposes.tile import THREADS, TransposeTile, choose_tile
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Nest, guard, int64
from backends.tensorir.flat_buffers import load_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import dtype_of, loads, shape_of, substitute

Expr = Any


def emit_transpose(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with loops bound to blocks and threads, of one dimension each.

    ```
    for block, thread in T.grid(outer * row_tiles * column_tiles, 256):   # blockIdx.x, threadIdx.x
        for turn in T.unroll(4):                                          # a warp reads 32 rows of one column
            line, row = divmod(turn * 256 + thread, 32)
            tile[line, row] = a[column + line, row_tile + row]
        barrier
        for turn in T.unroll(4):                                          # and stores 32 columns of one row
            line, column = divmod(turn * 256 + thread, 32)
            b[row_tile + line, column_tile + column] = max(tile[column, line], 0.0)
    ```

    Where lines begin inside of sectors, warps begin where sectors do, and tiles are longer (`choose_tile`); where they
    are few and short, as those of groups of channels, a block has several places of the outer axes. Neighbours in both,
    as the numbers of a head where heads and tokens change places, are turned together.

    Raises:
        Declined: `read_transpose` cannot read it.
    """
    parts = read_transpose(func)
    tile = choose_tile(parts)
    extents, unit = parts.sizes, parts.together
    tiles = [-(-extents[0] // tile.many), -(-extents[1] // tile.rows), -(-extents[2] // tile.columns)]
    nest = Nest()
    with (
        bound_loop(nest, "blockIdx.x", prod(tiles)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        held = {buffer: _shared(nest, buffer, tile) for buffer in parts.turned}
        column_tile = nest.bind("column_tile", tirx.floormod(block, int64(tiles[2])) * tile.columns)
        row_tile = tirx.floormod(tirx.floordiv(block, int64(tiles[2])), int64(tiles[1])) * tile.rows
        row_tile = nest.bind("row_tile", row_tile)
        outer = nest.bind("outer", tirx.floordiv(block, int64(tiles[1] * tiles[2])) * tile.many)
        places = _Places(parts, nest, tile, (outer, row_tile, column_tile), _single_numbers(parts, nest))
        for buffer, kept in held.items():
            walk = tile.loads[buffer]

            def begin(line: Expr, of: Var = buffer) -> Expr:
                return substitute(parts.turned[of], places.at(int64(0), line, int64(0), int64(0)).known)

            with walk.each(nest, thread, begin) as (line, at, is_one):
                inner, column, at = _parted(at, tile.columns, tile.rows * unit) if walk.is_run else (int64(0), line, at)
                row, own = _taken_apart(at, unit)
                place = places.at(row, column, inner, own)
                with guard(nest, _all(is_one, place.is_inside)):
                    value = load_flat(buffer, substitute(parts.turned[buffer], place.known))
                    nest.store(kept, [(inner * tile.columns + column) * tile.line(buffer) + at], value)
        barrier(nest)
        first = ((outer * extents[1] + row_tile) * extents[2] + column_tile) * unit
        with tile.stores.each(nest, thread, lambda line: first + line * (extents[2] * unit)) as (line, at, is_one):
            inner, row, at = _parted(at, tile.rows, tile.columns * unit) if tile.stores.is_run else (int64(0), line, at)
            column, own = _taken_apart(at, unit)
            place = places.at(row, column, inner, own)
            with guard(nest, _all(is_one, place.is_inside)):
                at = row * unit + own
                taken = {buffer: (inner * tile.columns + column) * tile.line(buffer) + at for buffer in held}
                place.store({buffer: tirx.BufferLoad(held[buffer], [each]) for buffer, each in taken.items()})
    return func.with_body(nest.finish())


def _all(*conditions: Expr | None) -> Expr | None:
    held = [condition for condition in conditions if condition is not None]
    return tirx.all(*held) if held else None


def _parted(at: Expr, lines: int, width: int) -> tuple[Expr, Expr, Expr]:
    """Return which group of lines of so many elements has the element `at` of a run, which line, and where in it."""
    line = tirx.floordiv(at, int64(width))
    return tirx.floordiv(line, int64(lines)), tirx.floormod(line, int64(lines)), tirx.floormod(at, int64(width))


def _taken_apart(at: Expr, unit: int) -> tuple[Expr, Expr]:
    """Return which unit has the element `at` of a line, and where in it."""
    return tirx.floordiv(at, int64(unit)), tirx.floormod(at, int64(unit))


def _shared(nest: Nest, buffer: Var, tile: TransposeTile) -> Var:
    elements = tile.many * tile.columns * tile.line(buffer)
    kept = tirx.decl_buffer((elements,), dtype_of(buffer), f"{buffer.name}_tile", scope="shared")
    nest.add(tirx.AllocBuffer(kept))
    return kept


def _single_numbers(parts: TransposedRegion, nest: Nest) -> dict[Var, Var]:
    """Add what loads tensors of one number, as scales are, once a thread; return the registers by tensor."""
    region = parts.region
    read = {load.source: None for stage in region.stages.values() for load in loads(stage.value)}
    kept = {}
    for buffer in read:
        if buffer not in region.stages and prod(shape_of(buffer)) == 1:
            kept[buffer] = register(nest, f"{buffer.name}_", 1, dtype_of(buffer))
            nest.store(kept[buffer], [int64(0)], load_flat(buffer, int64(0)))
    return kept


@dataclass(frozen=True)
class _Places:
    """The elements of a block's tile, which begins at `first`: the place of the outer axes, the row and the column;
    `kept` are registers with tensors of one number."""

    parts: TransposedRegion
    nest: Nest
    tile: TransposeTile
    first: tuple[Expr, Expr, Expr]
    kept: Mapping[Var, Var]

    def at(self, row: Expr, column: Expr, inner: Expr, own: Expr) -> _Place:
        """Return one, by its row, column and place of the outer axes in the tile, and where in a unit it is."""
        outer, first_row, first_column = self.first
        at = (outer + inner, first_row + row, first_column + column, own)
        return _Place(self.parts, self.nest, at, self.tile, self.kept)


class _Place:
    """One element of a thread.

    Attributes:
        known: What the axes of the outputs are there.
        is_inside: Whether there is such an element; None where that is so of all.
    """

    def __init__(
        self, parts: TransposedRegion, nest: Nest, at: Sequence[Expr], tile: TransposeTile, kept: Mapping[Var, Var]
    ) -> None:
        self.parts, self.nest, self.kept = parts, nest, kept
        *places, own = at
        named = [nest.bind(name, each) for name, each in zip(("outer", "row", "column"), places, strict=True)]
        ranges, tiles = list(zip(named, parts.sizes, strict=True)), (tile.many, tile.rows, tile.columns)
        conditions = [var < extent for (var, extent), size in zip(ranges, tiles, strict=True) if extent % size]
        self.is_inside = tirx.all(*conditions) if conditions else None
        if tile.unit > 1:
            own = nest.bind("own", own)
            ranges.append((own, tile.unit))
        self.analyzer = analyzer_below(ranges)
        outer, row, column = named
        self.known = parts.axes_at(outer, row, column, own)

    def store(self, turned: dict[Var, Expr]) -> None:
        """Add what makes the outputs there, of what is turned."""
        region, analyzer = self.parts.region, self.analyzer
        positions = {buffer: substitute(self.parts.turned[buffer], self.known) for buffer in turned}

        def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
            if buffer in self.kept:
                return tirx.BufferLoad(self.kept[buffer], [int64(0)])
            if buffer in turned:
                at = flat_index(shape_of(buffer), indices, analyzer)
                if analyzer.can_prove_equal(at, positions[buffer]):
                    return turned[buffer]
            return tirx.BufferLoad(buffer, list(indices))

        resolver = Resolver(region.stages, load, analyzer)
        values = [resolver.resolve(stage.value, self.known) for stage in region.outputs]
        self.nest.extend(tirx.Bind(var, bound) for var, bound in resolver.bindings)
        for stage, value in zip(region.outputs, values, strict=True):
            self.nest.store(stage.buffer, [self.known[axis.var] for axis in stage.spatial], value)
