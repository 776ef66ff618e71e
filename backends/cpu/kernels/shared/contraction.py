"""The micro-kernel and the loops around it, shared by matmul and convolution.

A contraction is an image of `height` x `width` rows (a matmul has width 1) times vectors of output channels, summed
over taps (the window of a convolution) and `depth` contiguous steps of k. The loops it becomes:

    parallel task: (outer, row chunk, panel chunk)
      [prologue: the chunk's input, padded, into scratch]
      for block of panels                              weights of one block stay in L2 for all rows of the chunk
        [copy of the block, a panel after the other]   of weights that lie as they come, in scratch: `packed_panels`
        for y tile, x tile
          for panel of `vectors` weight vectors        the tile's rows stay in L1
            acc[rows, vectors] = 0                     registers
            for tap, for k
              [fetch a part of the next tile's rows]   where they come from beyond L2
              [fetch weights]                          these, further ahead, or a part of the next block's
              w = weights[panel, tap, k]               `vectors` loads
              acc[i] += splat(a[row i, tap, k]) * w    rows x vectors FMAs, or dot products of pairs of bfloat16
            outputs = epilogue(acc)                    neighbouring panels write neighbouring channels
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from typing import Any

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu import amx, byte_dots
from backends.cpu.costs import FETCHED_TILES, FEW_TILES, PREFETCH_STEPS
from backends.cpu.kernels.shared.arithmetic import FLOAT32, Arithmetic, BFloat16
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.extents import Extents, vectors_are_lines
from backends.cpu.kernels.shared.packed_panels import PackedPanels
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.term_products import FLOAT32_TERMS, TermProducts
from backends.cpu.kernels.shared.tile_products import TileForm, TileProducts, TileSteps, TileWeights
from backends.cpu.kernels.shared.whole_products import BFLOAT16_IN_TILES, BYTES_IN_TILES, WholeProducts
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, prefetch
from backends.tensorir.roles import Output

Pixel = tuple[Expr, Expr]
Pixels = list[Pixel]


@dataclass(frozen=True)
class Blocking:
    """How the loops of a contraction are cut.

    Attributes:
        tile: The register tile.
        row_chunks, panel_chunks: Cuts of the tiles' rows and of the panels; each pair is a parallel task.
        panel_block: Panels whose weights stay in L2 while the rows of a chunk pass.
        cycles: Estimate for the slowest thread.
        in_tiles: Whether it is multiplied in tiles of AMX (`tile_products.py`); `tile` is then by what tasks are cut.
    """

    tile: RegisterTile
    row_chunks: int
    panel_chunks: int
    panel_block: int
    cycles: float = 0.0
    in_tiles: bool = False

    def longest_task(self, height: int) -> int:
        """Return how many rows of an image of `height` rows the largest task has at most."""
        rows = Split.of(height, self.tile.height)
        return Split(rows.count, self.row_chunks).longest * rows.longest

    def axes(self) -> dict[str, int]:
        cuts = {"row_chunks": self.row_chunks, "panel_chunks": self.panel_chunks, "panel_block": self.panel_block}
        return {**self.tile.axes("tile"), **cuts, **({"tiles": 1} if self.in_tiles else {})}

    def __str__(self) -> str:
        cuts = f"rows/{self.row_chunks} panels/{self.panel_chunks}"
        return f"{self.tile} in tiles {cuts}" if self.in_tiles else f"{self.tile} {cuts} by {self.panel_block}"


@dataclass(frozen=True)
class Contraction:
    """What a matmul or a convolution tells the emitter about itself. All callbacks get and return TensorIR expressions.

    Attributes:
        extents: Its sizes.
        padded_weights: Whether vectors of weights are whole even where the channels end inside one.
        load_rows: (outer, group, y, x, taps, k) -> the load of an element of the input.
        load_weights: (outer, group, channel, taps, step, count) -> the load of `count` weights, those of one step of k
            for neighbouring channels.
        coordinates: (outer, group, y, x, channel) -> indices of the anchor's result.
        outputs: The epilogue.
        arithmetic: What a step of k is.
        seen: (first pixel, last pixel) -> the first and how many of the taps of each axis add to a rectangle of pixels
            between these corners; None: all do.
        tiles: The weights, where they were packed in tiles before the run and it is computed in these.
    """

    extents: Extents
    padded_weights: bool
    load_rows: Callable[[Expr, Expr, Expr, Expr, Sequence[Expr], Expr], Expr]
    load_weights: Callable[[Expr, Expr, Expr, Sequence[Expr], Expr, int], Expr]
    coordinates: Callable[[Expr, Expr, Expr, Expr, Expr], list[Expr]]
    outputs: tuple[Output, ...]
    arithmetic: Arithmetic = FLOAT32
    seen: Callable[[Pixel, Pixel], Sequence[tuple[Expr, Expr]]] | None = None
    tiles: TileWeights | None = None


Prologue = Callable[[Nest, Expr, Expr, Expr], Callable[..., Any]]
"""(nest, outer, first row, end row) -> a `load_rows` that reads what the prologue left in scratch."""


def emit(
    nest: Nest, works: Sequence[Contraction], blocking: Blocking, prologue: Prologue | None = None,
    alike: bool = False, packs: bool = False,
) -> None:  # fmt: skip
    """Add the loops of `works`, which have the same rows, to `nest`; a task does its share of one after the other.

    The panels of all are cut as one sequence, or, `alike`, those of each, so that a task has the same ones of all. A
    task that `packs` copies each block of panels before its rows pass; the weights are of one group and of float32.
    """
    work = works[0]
    rounds = isinstance(work.arithmetic, BFloat16)
    if blocking.in_tiles:
        tile_form(work.extents).numbers.use_tiles(nest)
    rows = Split.of(work.extents.height, blocking.tile.height)
    row_chunks = Split(rows.count, blocking.row_chunks)
    panels = [-(-each.extents.vectors // blocking.tile.vectors) * each.extents.groups for each in works]
    chunks = Split(panels[0] if alike else sum(panels), blocking.panel_chunks)
    tasks = work.extents.outer * row_chunks.count * chunks.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
        panel_chunk = task % chunks.count
        row_chunk = task // chunks.count % row_chunks.count
        outer = task // (chunks.count * row_chunks.count)
        first = nest.bind("first_tile", int64(row_chunks.start(row_chunk)))
        many = row_chunks.size(row_chunk)
        load_rows = prologue(nest, outer, rows.start(first), rows.start(first + many)) if prologue else None
        elements = blocking.tile.rows * blocking.tile.vectors * work.extents.lanes
        start, count = int64(chunks.start(panel_chunk)), chunks.size(panel_chunk)
        granted = nest.keep("granted", amx.begin()) if blocking.in_tiles else None
        for place, each in enumerate(works):
            mine = (start, count) if alike else share(start, count, sum(panels[:place]), panels[place], sum(panels))
            if granted is not None:
                low, high = rows.start(first), rows.start(first + many)
                rows_of = load_rows or each.load_rows
                pixels = row_chunks.longest * rows.longest * work.extents.width
                has_few = pixels <= tile_form(work.extents).few_rows
                emit_in_tiles(
                    nest, each, rows_of, outer, granted, vectors=mine, rows=(low, high - low), has_few=has_few
                )
                continue
            epilogue = Epilogue.prepare(nest, each.outputs, elements, rounds, each.arithmetic.sums)
            kernel = MicroKernel(
                nest=nest,
                work=each,
                blocking=blocking,
                load_rows=load_rows or each.load_rows,
                outer=outer,
                epilogue=epilogue,
                fetches_rows=load_rows is None and rows.count > 1 and each.extents.waits_for_rows,
                packs=packs,
                has_blocks=chunks.longest > blocking.panel_block,
            )
            kernel.emit(*mine, rows, first, many)
        if granted is not None:
            with nest.when(granted > 0):
                nest.add(amx.end())


_FORMS: Mapping[str, tuple[TileForm, type[TileProducts]]] = {
    "float32": (FLOAT32_TERMS, TermProducts),
    "bfloat16": (BFLOAT16_IN_TILES, WholeProducts),
    byte_dots.LEFT: (BYTES_IN_TILES, WholeProducts),
}
"""By the dtype of rows, how they are multiplied in tiles."""


def tile_form(extents: Extents) -> TileForm:
    """Return how a product of these sizes lies in tiles."""
    form, _ = _FORMS[extents.dtype]
    return form


def tile_steps(extents: Extents) -> TileSteps:
    """Return its steps of k in tiles."""
    return TileSteps(extents.taps, extents.depth, tile_form(extents))


def emit_in_tiles(
    nest: Nest, work: Contraction, load_rows: Callable[..., Expr], outer: Expr, granted: Expr,
    vectors: tuple[Expr, Expr], rows: tuple[Expr, Expr], *, has_few: bool | None,
) -> None:  # fmt: skip
    """Add vectors of channels times rows of an image, the first and how many of each, in tiles where they are
    `granted`; `has_few` is as in `TileProducts`."""
    _use_functions(nest, work)
    extents, group = work.extents, int64(0)
    _, products = _FORMS[extents.dtype]
    kernel = products(
        nest=nest,
        steps=tile_steps(extents),
        channels=extents.channels,
        width=extents.width,
        load_rows=partial(load_rows, outer, group),
        load_weights=partial(work.load_weights, outer, group),
        coordinates=partial(work.coordinates, outer, group),
        epilogue=Epilogue(work.outputs, scratch=None),
        granted=granted,
        has_few=has_few,
        packed=work.tiles,
    )
    pixels = (nest.settle("pixels", int64(count * extents.width)) for count in rows)
    kernel.emit(*vectors, *pixels)


def _use_functions(nest: Nest, work: Contraction) -> None:
    """Let `nest` call what the arithmetic of `work` needs: that of rows which a product is made of may be another."""
    if work.arithmetic.functions:
        nest.use_functions(work.arithmetic.functions)


def share(start: Expr, count: Expr, offset: int, own: int, total: int) -> tuple[Expr, Expr]:
    """Return the first and how many of `own` panels, which begin at `offset` among `total`, are `count` from `start`
    on."""
    if own == total:
        return start, count
    low, high = tirx.max(start, offset), tirx.min(start + count, offset + own)
    return low - offset, tirx.max(high - low, 0)


def emit_inside(nest: Nest, work: Contraction, tile: RegisterTile) -> None:
    """Add all rows and panels of `work` to `nest`, as a part of another kernel's task."""
    panels = -(-work.extents.vectors // tile.vectors)
    kernel = MicroKernel.inside(nest, work, tile, int64(0), panel_block=panels)
    rows = Split.of(work.extents.height, tile.height)
    kernel.emit(int64(0), panels, rows, int64(0), rows.count)


@dataclass(frozen=True)
class NextBlock:
    """Packed weights behind a block of panels, of which the register tiles of that fetch a part each.

    Attributes:
        panel, panels: The first, and up to how many there are; none where that is not positive.
        each: Elements that a step of k fetches, rounded up.
        tile: The tile of rows that is computed.
    """

    panel: Expr
    panels: Expr
    each: Expr
    tile: Expr = 0


@dataclass(frozen=True)
class _Tile:
    """A register tile.

    Attributes:
        registers: Its sums.
        vectors: Their parts of a pixel, as (first channel, how many).
        pixels: Its rows.
        group, channel: The group, and the first channel in it.
    """

    registers: RegisterRows
    vectors: Sequence[tuple[int, int]]
    pixels: Pixels
    group: Expr
    channel: Expr


@dataclass(frozen=True)
class MicroKernel:
    """Emits the blocks, tiles and panels of one task.

    Attributes:
        fetches_rows: Whether the rows of the next tile are fetched while one is computed; they lie behind one another.
        packs: Whether the weights lie as they come, and are copied block by block.
        has_blocks: Whether a task may have several blocks of panels.
        next_block: That one.
    """

    nest: Nest
    work: Contraction
    blocking: Blocking
    load_rows: Callable[..., Expr]
    outer: Expr
    epilogue: Epilogue
    fetches_rows: bool = False
    packs: bool = False
    has_blocks: bool = False
    next_block: NextBlock | None = None

    @staticmethod
    def inside(
        nest: Nest, work: Contraction, tile: RegisterTile, outer: Expr, load_rows: Callable[..., Expr] | None = None,
        panel_block: int = 1,
    ) -> MicroKernel:  # fmt: skip
        """Return the micro-kernel for a part of another kernel's task."""
        epilogue = Epilogue.prepare(nest, work.outputs, tile.rows * tile.vectors * work.extents.lanes)
        return MicroKernel(
            nest=nest,
            work=work,
            blocking=Blocking(tile, 1, 1, panel_block),
            load_rows=load_rows or work.load_rows,
            outer=outer,
            epilogue=epilogue,
        )

    @property
    def panels(self) -> int:
        """Of one group."""
        return -(-self.work.extents.vectors // self.blocking.tile.vectors)

    @property
    def tiles(self) -> int:
        """How many tiles of rows a task takes through a panel at most; of open rows at typical sizes."""
        extents, tile = self.work.extents, self.blocking.tile
        rows, columns = Split.of(extents.height, tile.height), Split.of(extents.width, tile.width)
        return Split(rows.count, self.blocking.row_chunks).longest * columns.count

    @property
    def looks_ahead(self) -> bool:
        """Whether packed weights are fetched `PREFETCH_STEPS` of k ahead, a vector at a time: where that is a line, and
        where few tiles find them in L2, as the first does not."""
        return self.work.padded_weights and (self.tiles <= FEW_TILES or vectors_are_lines(self.work.extents.lanes))

    @property
    def fetches_blocks(self) -> bool:
        """Whether the next block of packed weights is instead, while the rows pass one."""
        packed = self.work.padded_weights and not self.packs
        return self.has_blocks and packed and not self.looks_ahead and self.tiles <= FETCHED_TILES

    def emit_rows(self, first: Expr, many: Expr, first_panel: Expr, panels: Expr) -> None:
        """Emit `panels` panels times `many` rows of pixels from `first` on, for a tile of one row."""
        height = self.work.extents.height
        self.emit(first_panel, panels, Split(height, height), first, many)

    def emit(self, first_panel: Expr, panels: Expr, rows: Split, first_tile: Expr, tiles: Expr) -> None:
        """Emit `panels` panels times `tiles` row tiles."""
        nest, block = self.nest, self.blocking.panel_block
        copies = self._copies() if self.packs else None
        with nest.loop("block", tirx.floordiv(panels + (block - 1), block)) as index:
            start = first_panel + index * block
            many = tirx.min(block, panels - index * block) if block > 1 else 1
            kernel = self._packed(copies, start, many) if copies else self
            if self.fetches_blocks:
                kernel = replace(kernel, next_block=self._behind(start + block, panels - (index + 1) * block, tiles))
            kernel._emit_tiles(start, many, rows, first_tile, tiles)

    def _behind(self, start: Expr, panels: Expr, tiles: Expr) -> NextBlock:
        """Return the block of up to `panels` panels from `start` on, which so many tiles of rows fetch."""
        work, tile = self.work, self.blocking.tile
        count = tiles * Split.of(work.extents.width, tile.width).count
        step = tile.vectors * work.extents.lanes * work.arithmetic.packed
        each = tirx.truncdiv(int64(count + (step - 1)), int64(count))
        return NextBlock(start, panels, self.nest.settle("fetched_each", each))

    def _emit_tiles(self, start: Expr, many: Expr, rows: Split, first_tile: Expr, tiles: Expr) -> None:
        """Emit the panels of one block times `tiles` row tiles."""
        nest, columns = self.nest, Split.of(self.work.extents.width, self.blocking.tile.width)
        with nest.loop("y_tile", tiles) as step, nest.loop("x_tile", columns.count) as x:
            y = first_tile + step
            kernel = self if self.next_block is None else self._at_tile(self.next_block, step * columns.count + x)
            for (height, tall), (width, wide) in product(_kinds(rows, y), _kinds(columns, x)):
                with guard(nest, tall), guard(nest, wide):
                    pixels = [(rows.start(y) + i, columns.start(x) + j) for i in range(height) for j in range(width)]
                    kernel.emit_panels(start, many, pixels, (height, width))

    def _at_tile(self, block: NextBlock, tile: Expr) -> MicroKernel:
        """Return the micro-kernel that computes this tile of rows."""
        return replace(self, next_block=replace(block, tile=tile))

    def _copies(self) -> PackedPanels:
        """Return memory for the panels of a block."""
        extents, vectors = self.work.extents, self.blocking.tile.vectors
        return PackedPanels.allocate(
            self.nest, min(self.blocking.panel_block, self.panels), channels=extents.channels,
            width=vectors * extents.lanes, depth=extents.depth, lanes=extents.lanes,
        )  # fmt: skip

    def _packed(self, copies: PackedPanels, start: Expr, many: Expr) -> MicroKernel:
        """Emit the copy of a block of panels, and return the micro-kernel that reads it."""
        load, group = self.work.load_weights, int64(0)
        copies.fill(self.nest, lambda n, k, count: load(self.outer, group, n, (), k, count), start, many)

        def load_copy(outer: Expr, group: Expr, n: Expr, taps: Sequence[Expr], k: Expr, count: int) -> Expr:
            return copies.load(start, n, k, count)

        return replace(self, work=replace(self.work, padded_weights=True, load_weights=load_copy))

    def emit_panels(self, start: Expr, many: Expr, pixels: Pixels, size: tuple[int, int]) -> None:
        """Emit the panels of one block over one tile of rows; the last panel of a group may be narrower."""
        vectors, lanes = self.blocking.tile.vectors, self.work.extents.lanes
        per_group = self.panels
        whole, rest = vectors * lanes, self.work.extents.channels - (per_group - 1) * vectors * lanes
        with self.nest.loop("panel", many) as index:
            group, panel = tirx.floordiv(start + index, per_group), tirx.floormod(start + index, per_group)
            kinds = [(panel < per_group - 1, whole), (panel >= per_group - 1, rest)]
            for condition, channels in kinds if rest != whole and per_group > 1 else [(None, rest)]:
                with guard(self.nest, condition):
                    self._tile(group, panel * whole, channels, pixels, size, turn=index)

    def _tile(
        self, group: Expr, channel: Expr, channels: int, pixels: Pixels, size: tuple[int, int], turn: Expr
    ) -> None:
        """Emit one register tile, that of the panel `turn` of its block: its sums, then the epilogue."""
        registers = self.sums(group, channel, channels, pixels, turn)
        top, left = pixels[0]
        self.epilogue.store(
            self.nest, registers, size, pieces(channels, self.work.extents.lanes),
            lambda i, j, c: self.work.coordinates(self.outer, group, top + i, left + j, channel + c),
        )  # fmt: skip

    def sums(
        self, group: Expr, channel: Expr, channels: int, pixels: Pixels, turn: Expr | None = None
    ) -> RegisterRows:
        """Emit the sums of one register tile: clear, accumulate over taps and k; fetch rows in the panel `turn`."""
        nest, work, lanes = self.nest, self.work, self.work.extents.lanes
        vectors = [(at, lanes) for at in range(0, channels, lanes)] if work.padded_weights else pieces(channels, lanes)
        registers = RegisterRows(nest, len(pixels), vectors, work.arithmetic.sums)
        tile = _Tile(registers, vectors, pixels, group, channel)
        block = self.next_block
        fetch = self._fetch_block(block, turn) if block is not None and turn is not None else None
        with ExitStack() as loops:
            taps = [
                begin + loops.enter_context(nest.loop(f"tap{axis}", many))
                for axis, (begin, many) in enumerate(self._seen(pixels))
            ]
            whole, rest = divmod(work.extents.depth, work.arithmetic.step)
            if whole:
                with nest.loop("k", whole) as step:
                    if self.fetches_rows and turn is not None:
                        self._fetch_rows(pixels, turn * whole + step)
                    if fetch is not None:
                        fetch(taps, step)
                    self._accumulate(tile, taps, step, work.arithmetic.step)
            if rest:
                self._accumulate(tile, taps, int64(whole), rest)
        return registers

    def _seen(self, pixels: Pixels) -> list[tuple[Expr, Expr]]:
        """Return the first and how many of the taps of each axis add to the sums of a tile."""
        if self.work.seen is None:
            return [(0, extent) for extent in self.work.extents.taps]
        settle = self.nest.settle
        return [
            (settle(f"first_tap{axis}", begin), settle(f"taps{axis}", many))
            for axis, (begin, many) in enumerate(self.work.seen(pixels[0], pixels[-1]))
        ]

    def _fetch_rows(self, pixels: Pixels, step: Expr) -> None:
        """Emit the fetch of as much of the next tile's rows as one of all steps of k of a block's panels has to."""
        panels = min(self.blocking.panel_block, self.panels)
        at = tirx.floordiv(step * (self.work.arithmetic.step * len(pixels)), panels)
        y, x = pixels[0]
        prefetch(self.nest, self.load_rows(self.outer, int64(0), y + len(pixels), x, (), at))

    def _fetch_block(self, block: NextBlock, turn: Expr) -> Callable[[Sequence[Expr], Expr], None]:
        """Return what emits, for (taps, step of k) of a tile in the panel `turn` of a block, the fetch of its part of
        the panel `turn` of the next one; the same line again where that has no such panel."""
        nest, work, width = self.nest, self.work, self.blocking.tile.vectors * self.work.extents.lanes
        extents, arithmetic = work.extents, work.arithmetic
        group, panel = tirx.floordiv(block.panel, self.panels), tirx.floormod(block.panel, self.panels)
        first = work.load_weights(self.outer, group, panel * width, [int64(0)] * len(extents.taps), int64(0), 1)
        *outer, _ = first.indices
        each = nest.settle("fetched_each", tirx.Select(turn < block.panels, block.each, int64(0)))
        whole = nest.settle("panel_fetched", tirx.Select(turn < block.panels, int64(turn), int64(0)))
        begin = nest.settle("fetched", (whole * (width * arithmetic.packed) + block.tile * each) * extents.steps)

        def fetch(taps: Sequence[Expr], step: Expr) -> None:
            at = int64(0)
            for tap, extent in zip(taps, extents.taps, strict=True):
                at = at * extent + tap
            at = at * -(-extents.depth // arithmetic.step) + step
            prefetch(nest, tirx.BufferLoad(first.source, [*outer, begin + at * each]))

        return fetch

    def _accumulate(self, tile: _Tile, taps: Sequence[Expr], step: Expr, many: int) -> None:
        """Emit one step of k, of `many` elements."""
        _use_functions(self.nest, self.work)
        nest, work, width = self.nest, self.work, self.work.arithmetic.step
        load_weights = partial(work.load_weights, self.outer, tile.group)
        weights = []
        for at, count in tile.vectors:
            load = load_weights(tile.channel + at, taps, step, count * work.arithmetic.packed)
            weights.append(nest.bind(f"w{at}", work.arithmetic.weights(load, many)))
        for at, _ in tile.vectors if self.looks_ahead else ():
            prefetch(nest, load_weights(tile.channel + at, taps, step + PREFETCH_STEPS, 1))
        for row, (y, x) in enumerate(tile.pixels):
            first = self.load_rows(self.outer, tile.group, y, x, taps, step * width)
            value = nest.bind(f"a{row}", work.arithmetic.row(first, many))
            for part, weight in enumerate(weights):
                _, lanes = tile.vectors[part]
                total = tile.registers.read(row, part)
                tile.registers.write(row, part, work.arithmetic.multiply_add(total, value, weight, lanes))


def _kinds(split: Split, index: Expr) -> list[tuple[int, Expr | None]]:
    """Return (tile size, condition under which the tile `index` has it)."""
    if not split.long_tiles:
        return [(split.short, None)]
    return [(split.short + 1, index < split.long_tiles), (split.short, index >= split.long_tiles)]
