"""Stages that are computed tile by tile in one parallel loop."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from math import prod

from tvm import sym, tirx
from tvm.ir import Range, Var
from tvm.tirx import ForKind
from tvm_ffi.structural import structural_equal

from backends.cpu.costs import SERIAL_OPERATIONS
from backends.cpu.kernels.shared.stitching.plan import Tiling, operations_of
from backends.cpu.kernels.shared.stitching.stage_writer import write_stage
from backends.cpu.kernels.shared.stitching.tiled_stage import At, LoopAxis, Scope, StageLoops, TiledStage
from backends.cpu.kernels.shared.stitching.tiling import SharedAxis, merge_open, shared_axes
from backends.cpu.kernels.shared.stitching.transpose_writer import write_transpose
from backends.cpu.kernels.shared.stitching.vector_axis import Turn, choose_vector_axis, find_turn
from backends.cpu.machine import Machine
from backends.tensorir.accesses import Accesses, flat_index, stage_accesses
from backends.tensorir.collapsing import Run, axis_values, collapse_runs, run_extent
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.extents import Extent, is_same, least, most, typical
from backends.tensorir.flat_buffers import DistinctSizes, load_flat
from backends.tensorir.open_analyzer import Analyzer, analyzer_of
from backends.tensorir.stages import Axis, Stage, dims_of, dtype_of

# A part of a row of so many elements is worth a tile of its own.
_LONG_ROW = 1024


@dataclass(frozen=True, eq=False)
class Member:
    """A stage of a cluster.

    Attributes:
        vector: The axis whose neighbours become lanes.
    """

    stage: Stage
    accesses: Accesses
    vector: Axis | None

    @classmethod
    def of(cls, stage: Stage, accesses: Accesses) -> Member:
        """Return a stage with its vector axis."""
        return cls(stage, accesses, choose_vector_axis(stage, accesses))


@dataclass(frozen=True)
class _Tiles:
    """How the axes that stages share are cut.

    Attributes:
        shared: Axes that a tile holds fixed, outermost first.
        blocked: The shared axis that is vectorised; a tile covers `block` elements of it.
        blocks: How many tiles share it.
    """

    shared: Sequence[SharedAxis]
    blocked: SharedAxis | None
    block: Extent
    blocks: Extent

    @classmethod
    def of_vectors(cls, blocked: SharedAxis | None, shared: list[SharedAxis], tiling: Tiling) -> _Tiles:
        """Return the tiles of stages that are vectorised along `blocked`, or inside a tile where that is None."""
        outer = [axis for axis in shared if axis is not blocked]
        if blocked is None:
            return cls(outer, None, 1, 1)
        others = prod(axis.extent for axis in outer)
        block = _block_size(blocked, others, tiling.tasks * tiling.tiles)
        return cls(outer, blocked, block, _blocks(blocked, block))

    @classmethod
    def of_transpose(cls, member: Member, shared: list[SharedAxis], turn: Turn, lanes: int) -> _Tiles:
        """Return the tiles of a transpose: each is as many positions of the input's contiguous axis as lanes.

        Where these tiles overlap (24 channels are 16 and 16), threads also share out the leading axes of the result's
        run: 24 channels of 120x120 took 123 us with two that wrote the same lines at once, and take 59.
        """
        runs = collapse_runs(member.stage.spatial, member.accesses)
        along = next(run for run in runs if member.vector in run)
        if not isinstance(turn.across.extent, int) or turn.across.extent % lanes:
            along = _trailing(along, 2 * lanes)
        taken = {turn.across.var} | {axis.var for axis in along}
        outer = [SharedAxis(((axis,),)) for run in shared for axis in run.members[0] if axis.var not in taken]
        blocked = SharedAxis(((turn.across,),))
        return cls([axis for axis in outer if axis.extent != 1], blocked, lanes, _blocks(blocked, lanes))


@dataclass(frozen=True)
class Cluster:
    """Stages computed tile by tile in one parallel loop.

    Attributes:
        inlined: Stages that are computed where they are read.
        full: What holds a stage's whole buffer; the other stages of the cluster have scratch of one tile.
        tiles: What a tile is.
        turn: The load that is turned, where the cluster is a transpose.
    """

    members: Sequence[Member]
    inlined: Mapping[Var, Stage]
    full: Mapping[Var, Var]
    machine: Machine
    tiling: Tiling
    tiles: _Tiles
    turn: Turn | None = None

    @classmethod
    def make(
        cls,
        stages: Sequence[Stage],
        inlined: Mapping[Var, Stage],
        full: Mapping[Var, Var],
        machine: Machine,
        tiling: Tiling,
    ) -> Cluster:
        """Return the cluster of `stages`, its tiles chosen."""
        accesses = {stage.buffer: stage_accesses(stage, inlined) for stage in stages}
        members = [Member.of(stage, accesses[stage.buffer]) for stage in stages]
        shared = [axis for axis in shared_axes(stages, accesses) if axis.extent != 1]
        # a vector axis with branches is cut into segments, so it cannot be cut into blocks as well
        vectors = [(each.vector.var, each.accesses) for each in members if each.vector]
        cut = [var for var, own in vectors if var in own.guarded]
        shared = [axis for axis in shared if not any(axis.has(var) for var in cut)]
        shared = merge_open(shared, [each.accesses for each in members])
        lanes, (first, *others), last = machine.vector_lanes, members, members[-1]
        turn = None if others else find_turn(first.stage, first.accesses, first.vector, lanes)
        if turn is not None:
            tiles = _Tiles.of_transpose(first, shared, turn, lanes)
        else:
            tiles = _Tiles.of_vectors(_blocked_axis(members, shared), shared, tiling)
        may_hold = tiles.blocked is None and _reads_first(last)
        full = {**full, **_in_place(members, full)} if may_hold else full
        return cls(members=members, inlined=inlined, full=full, machine=machine, tiling=tiling, tiles=tiles, turn=turn)

    def describe(self) -> str:
        tiles = " x ".join(str(axis.extent) for axis in self.tiles.shared) or "1"
        inner = f", blocks of {self.tiles.block} of {self.tiles.blocked.extent}" if self.tiles.blocked else ""
        return f"{len(self.members)} stages, {tiles} tiles{inner}"

    @property
    def is_open(self) -> bool:
        """Whether only a call knows how many tiles there are, and whether they are worth several threads."""
        return not isinstance(self.units, int)

    @property
    def _operations(self) -> Extent:
        """Simple operations on all elements."""
        return sum(operations_of(each.stage, each.accesses, self.inlined) for each in self.members)

    @property
    def _stages(self) -> list[Stage]:
        return [member.stage for member in self.members]

    @property
    def units(self) -> Extent:
        """Number of tiles."""
        return prod(axis.extent for axis in self.tiles.shared) * self.tiles.blocks

    def emit(self, nest: Nest, sizes: DistinctSizes) -> None:
        """Add the loop over tiles, cut into one run of neighbouring tiles per thread."""
        block, blocks = _named(nest, "block", self.tiles.block), _named(nest, "blocks", self.tiles.blocks)
        replace(self, tiles=replace(self.tiles, block=block, blocks=blocks))._emit(nest, sizes)

    def _emit(self, nest: Nest, sizes: DistinctSizes) -> None:
        units = _named(nest, "units", self.units)
        threads = _named(nest, "threads", least(self.tiling.tasks, units)) if self.tiling.tasks > 1 else 1
        analyzer = analyzer_of([units, *(axis.extent for each in self._stages for axis in each.spatial + each.reduce)])

        def tiles(extent: Expr, begin: Expr = 0) -> None:
            scratch = {each.buffer: self._scratch(each, sizes) for each in self._stages if each.buffer not in self.full}
            nest.extend(tirx.AllocBuffer(buffer) for buffer, _ in scratch.values())
            digits = self._digits
            if isinstance(begin, int) and not all(isinstance(digit, int) for digit in digits[:-1]):
                with _counted(nest, digits) as found:
                    self._tile(nest, found, scratch, analyzer)
                return
            with nest.run("tile", extent, begin=begin) as unit:
                analyzer.bind(unit, Range.from_min_extent(int64(0), int64(units)))
                self._tile(nest, _divided(unit, digits), scratch, analyzer)

        def share() -> None:
            with nest.run("thread", threads, ForKind.PARALLEL) as thread:
                first = tirx.floordiv(thread * units, int64(threads))
                tiles(tirx.floordiv((thread + 1) * units, int64(threads)) - first, first)

        if isinstance(threads, int) and threads <= 1:
            tiles(units)
        elif self.is_open:
            nest.choose(self._operations >= SERIAL_OPERATIONS, share, lambda: tiles(units))
        else:
            share()

    def _scratch(self, stage: Stage, sizes: DistinctSizes) -> tuple[Var, list[Extent]]:
        """Return a tile's buffer for a stage and the extent of each of its dimensions, 1 where the tile is fixed."""
        extents = []
        for axis in stage.spatial:
            if self.tiles.blocked is not None and self.tiles.blocked.has(axis.var):
                extents.append(self.tiles.block)
            else:
                extents.append(1 if any(shared.has(axis.var) for shared in self.tiles.shared) else axis.extent)
        return sizes.allocate(prod(extents), dtype_of(stage.buffer), "tile"), extents

    def _tile(
        self, nest: Nest, digits: Sequence[Expr], scratch: dict[Var, tuple[Var, list[Extent]]], analyzer: Analyzer
    ) -> None:
        fixed, start = self._position(nest, digits, analyzer)

        def place(buffer: Var, indices: Sequence[Expr]) -> Expr:
            if buffer in scratch:
                return self._place_in_tile(buffer, indices, scratch[buffer], start, analyzer)
            return _place_in_full(self.full.get(buffer, buffer), dims_of(buffer), indices, analyzer)

        scope = Scope(nest, self.inlined, place, analyzer)
        for member in self.members:
            tiled = TiledStage(member.stage, member.accesses, self._loops(member, fixed, start), scope)
            vector_bytes = self.machine.vector_lanes * 4
            if self.turn is None:
                write_stage(tiled, vector_bytes, self.tiling, in_place=self._is_in_place(member))
            else:
                write_transpose(tiled, self.turn, vector_bytes)

    def _is_in_place(self, member: Member) -> bool:
        """Return whether a stage reads another one from the buffer that it writes."""
        own = self.full.get(member.stage.buffer)
        return own is not None and any(own.same_as(self.full.get(load.buffer)) for load in member.accesses.loads)

    def _loops(self, member: Member, fixed: dict[SharedAxis, Expr], start: Expr) -> StageLoops:
        """Return the loops of a stage inside a tile that fixes some axes, and whose block begins at `start`."""
        position = self.members.index(member)
        at: At = {}
        for shared in self.tiles.shared:
            at |= axis_values(shared.members[position], fixed[shared])
        blocked = self.tiles.blocked.members[position] if self.tiles.blocked else ()
        own = [axis for axis in member.stage.spatial if axis.var not in at]
        reduce = [_whole(run) for run in collapse_runs(member.stage.reduce, member.accesses)]
        vector = member.vector if member.vector and member.vector.var not in at else None
        return StageLoops(at, self._loop_axes(own, blocked, member.accesses, start), reduce, vector)

    def _loop_axes(self, axes: list[Axis], blocked: Run, accesses: Accesses, start: Expr) -> list[LoopAxis]:
        """Return the loops of a stage inside a tile: its own axes in runs, and its part of the `blocked` axis."""
        result = []
        own: list[Axis] = []
        for axis in axes:
            if axis not in blocked:
                own.append(axis)
            elif axis is blocked[-1]:
                result += [_whole(run) for run in collapse_runs(own, accesses)]
                result.append(LoopAxis(blocked, start, self.tiles.block))
                own = []
        return result + [_whole(run) for run in collapse_runs(own, accesses)]

    @property
    def _digits(self) -> list[Extent]:
        """How many blocks there are, where there are several, and places of each axis that a tile holds fixed, from the
        innermost on: a tile's number counts through them."""
        return [self.tiles.blocks] * self._is_cut + [axis.extent for axis in reversed(self.tiles.shared)]

    @property
    def _is_cut(self) -> bool:
        return self.tiles.blocked is not None and not (isinstance(self.tiles.blocks, int) and self.tiles.blocks == 1)

    def _position(
        self, nest: Nest, digits: Sequence[Expr], analyzer: Analyzer
    ) -> tuple[dict[SharedAxis, Expr], Expr]:
        """Bind the values of the fixed axes and return them, and where the block of the vector axis begins."""
        fixed: dict[SharedAxis, Expr] = {}
        start: Expr = int64(0)
        if self._is_cut:
            assert self.tiles.blocked is not None, "an axis is cut"
            begin = digits[0] * self.tiles.block
            places = self.tiles.blocked.extent
            if self.turn is None or isinstance(places, int):  # a square is cut where an open axis ends
                places = places - self.tiles.block + 1
                begin = tirx.min(begin, int64(places - 1))
            start = _bind(nest, "start", begin, places, analyzer)
        for axis, value in zip(reversed(self.tiles.shared), digits[self._is_cut :], strict=True):
            fixed[axis] = _bind(nest, axis.members[-1][-1].var.name, value, axis.extent, analyzer)
        return fixed, start

    def _place_in_tile(
        self, buffer: Var, indices: Sequence[Expr], scratch: tuple[Var, list[Extent]], start: Expr, analyzer: Analyzer
    ) -> Expr:
        tile, extents = scratch
        stage = next(stage for stage in self._stages if stage.buffer.same_as(buffer))
        local: list[Expr] = []
        for axis, extent, position in zip(stage.spatial, extents, indices, strict=True):
            if self.tiles.blocked is not None and self.tiles.blocked.has(axis.var):
                local.append(position - start)
            else:
                local.append(int64(0) if extent == 1 else position)
        return tirx.BufferLoad(tile, [flat_index(extents, local, analyzer) if local else int64(0)])


@contextmanager
def _counted(nest: Nest, extents: Sequence[Extent]) -> Iterator[list[Expr]]:
    """Open loops over all tiles; give the digits of the number of a tile, from the innermost on.

    There is one for each symbol: to divide the number of each tile by one took 0.1 of 0.3 us of 96 rows of 15 elements.
    Digits that have numbers of places are divided from those around them: LLVM unrolls loops of 8 around others.
    """
    parts: list[list[Extent]] = [[]]
    for extent in extents:
        if parts[-1] and not isinstance(parts[-1][-1], int):
            parts.append([])
        parts[-1].append(extent)
    with ExitStack() as loops:
        units = [loops.enter_context(nest.run("tile", prod(part))) for part in reversed(parts)]
        yield [digit for unit, part in zip(reversed(units), parts, strict=True) for digit in _divided(unit, part)]


def _divided(unit: Expr, extents: Sequence[Extent]) -> list[Expr]:
    """Return the digits of number `unit`, from the innermost on."""
    digits = []
    for extent in extents[:-1]:
        digits.append(tirx.floormod(unit, int64(extent)))
        unit = tirx.floordiv(unit, int64(extent))
    return [*digits, unit] if extents else []


def _reads_first(member: Member) -> bool:
    """Return whether a stage reads each element before it stores there: `MapWriter` sees to it where vectors overlap,
    but not where branches cut a row into segments."""
    return member.vector is not None and member.vector.var not in member.accesses.guarded


def _in_place(members: Sequence[Member], full: Mapping[Var, Var]) -> dict[Var, Var]:
    """Return a stage that the last one reads element by element, with the last one's buffer, which may hold it until
    then.

    The exponentials of a softmax then bring the lines of its result into the cache while they are computed. us, one
    Zen 4 vCPU, with scratch and in place: 1536 rows of 128 66 and 68, 6144 of 512 1271 and 894, 12288 of 1024 6420 and
    4500.
    """
    *stages, last = (member.stage for member in members)
    if last.combine is not None or last.offsets or last.buffer not in full:
        return {}
    element = [axis.var for axis in last.spatial]
    for stage in stages:
        loads = [list(load.indices) for load in members[-1].accesses.loads if load.buffer.same_as(stage.buffer)]
        kind, result = ((dtype_of(each.buffer), dims_of(each.buffer)) for each in (stage, last))
        is_map = stage.combine is None and not stage.offsets and stage.buffer not in full
        if is_map and kind == result and loads and all(structural_equal(indices, element) for indices in loads):
            return {stage.buffer: full[last.buffer]}
    return {}


def _whole(run: Run) -> LoopAxis:
    return LoopAxis(run, int64(0), run_extent(run))


def _named(nest: Nest, name: str, extent: Extent) -> Extent:
    """Return an extent, behind a name where it is computed."""
    return extent if isinstance(extent, int | Var) else nest.settle(name, extent)


def _bind(nest: Nest, name: str, value: Expr, extent: Extent, analyzer: Analyzer) -> Var:
    var = nest.bind(name, value) if isinstance(analyzer, sym.Analyzer) else nest.settle(name, value)
    analyzer.bind(var, Range.from_min_extent(int64(0), int64(extent)))
    return var


def _trailing(run: Run, least: int) -> Run:
    """Return the last axes of `run` that together have at least `least` positions, or all of them."""
    for first in range(len(run) - 1, 0, -1):
        if typical(run_extent(run[first:])) >= least:
            return run[first:]
    return run


def _place_in_full(buffer: Var, shape: tuple[Extent, ...], indices: Sequence[Expr], analyzer: Analyzer) -> Expr:
    return load_flat(buffer, flat_index(shape, indices, analyzer) if shape else int64(0))


def _blocked_axis(members: list[Member], shared: list[SharedAxis]) -> SharedAxis | None:
    """Return the shared axis along which most of the work is vectorised; None if most is vectorised inside a tile."""
    inside = 0
    work = {axis: 0 for axis in shared}
    for member in members:
        vector = member.vector
        mine = next((axis for axis in shared if vector is not None and axis.has(vector.var)), None)
        if mine is not None:
            work[mine] += member.stage.iterations
        elif vector is not None:
            inside += member.stage.iterations
    most = max(shared, key=lambda axis: work[axis], default=None)
    return most if most is not None and work[most] > inside else None


def _blocks(axis: SharedAxis, block: Extent) -> Extent:
    return 1 if is_same(axis.extent, block) else (axis.extent + (block - 1)) // block


def _block_size(axis: SharedAxis, outer: Extent, tiles: int) -> Extent:
    """Return the elements of the vector axis per tile: all, unless the other axes are too few for the tiles wanted.

    A row whose extent is a number is cut by one: into all tiles where it is long and only a call knows how many rows
    there are.
    """
    extent = axis.extent
    if isinstance(extent, int) and not isinstance(outer, int):
        outer = 1 if extent >= _LONG_ROW * tiles else tiles
    if tiles <= 1 or (isinstance(outer, int) and outer >= tiles):
        return extent
    wanted = (extent * outer + (tiles - 1)) // tiles
    return most(least(extent, (wanted + 63) // 64 * 64), 1)
