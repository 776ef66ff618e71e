"""The loops of an elementwise region of which an operand is turned in shared memory."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from typing import Any

import tvm_ffi
from tvm import tirx
from tvm.ir import Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cuda.codegen.device_functions import barrier
from backends.cuda.devices import WARP
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.transposes.read import TransposedRegion, read_transpose
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Nest, guard, int64
from backends.tensorir.flat_buffers import load_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import dtype_of, shape_of, substitute

Expr = Any
_TILE = WARP
_BANK_BYTES = 4
_THREADS = 256


def emit_transpose(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with loops bound to blocks and threads, of one dimension each.

    ```
    for block, thread in T.grid(outer * row_tiles * column_tiles, 256):   # blockIdx.x, threadIdx.x
        for turn in T.unroll(4):                                          # a warp reads 32 rows of one column
            tile[warp + turn * 8, lane] = a[column, row + lane]
        barrier
        for turn in T.unroll(4):                                          # and stores 32 columns of one row
            b[row, column + lane] = max(tile[lane, warp + turn * 8], 0.0)
    ```

    Raises:
        Declined: `read_transpose` cannot read it.
    """
    parts = read_transpose(func)
    extents = [prod(parts.extents(places)) for places in (parts.outer, parts.rows, parts.columns)]
    tiles = [extents[0], *(-(-extent // _TILE) for extent in extents[1:])]
    nest = Nest()
    with (
        bound_loop(nest, "blockIdx.x", prod(tiles)) as block,
        bound_loop(nest, "threadIdx.x", _THREADS) as thread,
    ):
        held = {buffer: _shared(nest, buffer) for buffer in parts.turned}
        lane = nest.bind("lane", tirx.floormod(thread, int64(WARP)))
        warp = nest.bind("warp", tirx.floordiv(thread, int64(WARP)))
        column_tile = nest.bind("column_tile", tirx.floormod(block, int64(tiles[2])) * _TILE)
        row_tile = nest.bind("row_tile", tirx.floormod(tirx.floordiv(block, int64(tiles[2])), int64(tiles[1])) * _TILE)
        outer = nest.bind("outer", tirx.floordiv(block, int64(tiles[1] * tiles[2])))
        with nest.run("turn", _TILE * WARP // _THREADS, ForKind.UNROLLED) as turn:
            line = nest.bind("line", warp + turn * (_THREADS // WARP))
            place = _Place(parts, nest, (outer, row_tile + lane, column_tile + line), extents)
            with guard(nest, place.is_inside):
                for buffer, tile in held.items():
                    value = load_flat(buffer, substitute(parts.turned[buffer], place.known))
                    nest.store(tile, [line * _line(buffer) + lane], value)
        barrier(nest)
        with nest.run("turn", _TILE * WARP // _THREADS, ForKind.UNROLLED) as turn:
            line = nest.bind("line", warp + turn * (_THREADS // WARP))
            place = _Place(parts, nest, (outer, row_tile + line, column_tile + lane), extents)
            with guard(nest, place.is_inside):
                places = {buffer: lane * _line(buffer) + line for buffer in held}
                place.store({buffer: tirx.BufferLoad(held[buffer], [at]) for buffer, at in places.items()})
    return func.with_body(nest.finish())


def _line(buffer: Var) -> int:
    """Return how many elements lie from one line of a tile to the next: lanes that walk down a column meet different
    banks, each an odd number of them behind the one before."""
    return _TILE + max(1, _BANK_BYTES // int(tvm_ffi.dtype(dtype_of(buffer)).itemsize))


def _shared(nest: Nest, buffer: Var) -> Var:
    tile = tirx.decl_buffer((_TILE * _line(buffer),), dtype_of(buffer), f"{buffer.name}_tile", scope="shared")
    nest.add(tirx.AllocBuffer(tile))
    return tile


class _Place:
    """One element of a thread.

    Attributes:
        known: What the axes of the outputs are there.
        is_inside: Whether there is such an element; None where that is so of all.
    """

    def __init__(self, parts: TransposedRegion, nest: Nest, at: Sequence[Expr], extents: Sequence[int]) -> None:
        self.parts, self.nest, self.analyzer = parts, nest, Analyzer()
        named = [nest.bind(name, each) for name, each in zip(("outer", "row", "column"), at, strict=True)]
        conditions = []
        for var, extent, is_tiled in zip(named, extents, (False, True, True), strict=True):
            self.analyzer.bind(var, Range(int64(0), int64(extent)))
            conditions += [var < extent] if is_tiled and extent % _TILE else []
        self.is_inside = tirx.all(*conditions) if conditions else None
        self.known: dict[Var, Expr] = {axis.var: int64(0) for axis in parts.region.axes}
        for var, places in zip(named, (parts.outer, parts.rows, parts.columns), strict=True):
            indices = unravel(var, parts.extents(places)) if places else []
            self.known |= {parts.region.axes[place].var: each for place, each in zip(places, indices, strict=True)}

    def store(self, turned: dict[Var, Expr]) -> None:
        """Add what makes the outputs there, of what is turned."""
        region, analyzer = self.parts.region, self.analyzer
        positions = {buffer: substitute(self.parts.turned[buffer], self.known) for buffer in turned}

        def load(buffer: Var, indices: Sequence[Expr]) -> Expr:
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
