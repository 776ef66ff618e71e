"""The micro-kernel and the loops around it, shared by matmul and convolution.

A contraction is an image of `height` x `width` rows (a matmul has width 1) times vectors of output channels, summed over taps (the
window of a convolution) and `depth` contiguous steps of k. The loops it becomes:

    parallel task: (outer, row chunk, panel chunk)
      [prologue: the chunk's input, padded, into scratch]
      for panel of `vectors` weight vectors            weights of one panel stay in L1 for all rows of the chunk
        for y tile, x tile
          acc[rows, vectors] = 0                       registers
          for tap, for k
            w = weights[panel, tap, k]                 `vectors` loads
            acc[i] += splat(a[row i, tap, k]) * w      rows x vectors FMAs
          outputs = epilogue(acc)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.anchors.epilogue import store_tile
from backends.cpu.anchors.register_tile import RegisterTile
from backends.cpu.anchors.roles import Output
from backends.cpu.anchors.split import Split
from backends.cpu.emit import Expr, Nest, pieces, ramp, splat


@dataclass(frozen=True)
class Blocking:
    """How the loops of a contraction are cut: registers, then chunks of rows and of panels that become parallel tasks."""

    tile: RegisterTile
    row_chunks: int
    panel_chunks: int

    def __str__(self) -> str:
        return f"{self.tile} rows/{self.row_chunks} panels/{self.panel_chunks}"


@dataclass(frozen=True)
class Contraction:
    """What a matmul or a convolution tells the emitter about itself. All callbacks get and return TensorIR expressions.

    Attributes:
        outer: Extent of the loop over independent images (batch).
        groups: Convolution groups; each has its own channels on both sides.
        height, width: Rows of one image.
        channels: Output channels per group.
        taps: Extents of the window loops.
        depth: Contiguous steps of k per tap.
        lanes: float32 lanes of a vector.
        padded_weights: Whether vectors of weights are whole even where `channels` ends inside one.
        load_rows: (outer, group, y, x, taps, k) -> the scalar of the input.
        load_weights: (outer, group, channel, taps, k, lanes) -> a vector of weights.
        coordinates: (outer, group, y, x, channel) -> indices of the anchor's result.
        outputs: The epilogue.
        dtype: Type of the accumulators.
    """

    outer: int
    groups: int
    height: int
    width: int
    channels: int
    taps: tuple[int, ...]
    depth: int
    lanes: int
    padded_weights: bool
    load_rows: Callable[[Expr, Expr, Expr, Expr, Sequence[Expr], Expr], Expr]
    load_weights: Callable[[Expr, Expr, Expr, Sequence[Expr], Expr, int], Expr]
    coordinates: Callable[[Expr, Expr, Expr, Expr, Expr], list[Expr]]
    outputs: tuple[Output, ...]
    dtype: str = "float32"

    @property
    def vectors(self) -> int:
        """Weight vectors per group."""
        return -(-self.channels // self.lanes)

    @property
    def steps(self) -> int:
        """Steps of k over all taps."""
        total = self.depth
        for extent in self.taps:
            total *= extent
        return total


Prologue = Callable[[Nest, Expr, Expr, Expr], Callable[..., Any]]
"""(nest, outer, first row, end row) -> a `load_rows` that reads what the prologue left in scratch."""


def emit(nest: Nest, work: Contraction, blocking: Blocking, prologue: Prologue | None = None) -> None:
    """Add the loops of `work` to `nest`."""
    rows = Split.of(work.height, blocking.tile.height)
    panels = -(-work.vectors // blocking.tile.vectors) * work.groups
    row_chunks, panel_chunks = Split(rows.count, blocking.row_chunks), Split(panels, blocking.panel_chunks)
    tasks = work.outer * row_chunks.count * panel_chunks.count
    with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
        panel_chunk = task % panel_chunks.count
        row_chunk = task // panel_chunks.count % row_chunks.count
        outer = task // (panel_chunks.count * row_chunks.count)
        first = nest.bind("first_tile", _int(row_chunks.start(row_chunk)))
        many = _size(row_chunks, row_chunk)
        load_rows = work.load_rows
        if prologue:
            load_rows = prologue(nest, outer, rows.start(first), rows.start(first + many))
        kernel = _Kernel(nest, work, blocking.tile, load_rows, outer)
        with nest.loop("panel_of_chunk", _size(panel_chunks, panel_chunk)) as index:
            kernel.panel(_int(panel_chunks.start(panel_chunk)) + index, rows, first, many)


def _int(value: Expr) -> Expr:
    return tirx.const(value, "int64") if isinstance(value, int) else value


def _size(split: Split, index: Expr) -> Expr:
    """Return how many iterations the tile `index` of a split has."""
    if not split.long_tiles:
        return split.short
    return split.short + tirx.Select(index < split.long_tiles, tirx.const(1, "int64"), tirx.const(0, "int64"))


@dataclass(frozen=True)
class _Kernel:
    """Emits the panels and tiles of one task."""

    nest: Nest
    work: Contraction
    tile: RegisterTile
    load_rows: Callable[..., Expr]
    outer: Expr

    def panel(self, panel: Expr, rows: Split, first: Expr, many: Expr) -> None:
        """Emit one panel; the last one of a group may be narrower."""
        vectors, per_group = self.tile.vectors, -(-self.work.vectors // self.tile.vectors)
        group, index = panel // per_group, panel % per_group
        rest = self.work.channels - (per_group - 1) * vectors * self.work.lanes
        is_last = index == per_group - 1
        kinds = [(index < per_group - 1, vectors * self.work.lanes), (is_last, rest)]
        if rest == vectors * self.work.lanes:
            kinds = [(None, rest)]
        elif per_group == 1:
            kinds = [(None, rest)]
        for condition, channels in kinds:
            _guarded(self.nest, condition, lambda n=channels: self._rows(group, index * (vectors * self.work.lanes), n, rows, first, many))

    def _rows(self, group: Expr, channel: Expr, channels: int, rows: Split, first: Expr, many: Expr) -> None:
        columns = Split.of(self.work.width, self.tile.width)
        with self.nest.loop("y_tile", many) as step:
            y = first + step
            for height, condition in _kinds(rows, y):
                _guarded(self.nest, condition, lambda h=height: self._columns(group, channel, channels, rows.start(y), h, columns))

    def _columns(self, group: Expr, channel: Expr, channels: int, y: Expr, height: int, columns: Split) -> None:
        with self.nest.loop("x_tile", columns.count) as x:
            for width, condition in _kinds(columns, x):
                _guarded(
                    self.nest, condition, lambda w=width: self._tile(group, channel, channels, y, columns.start(x), height, w)
                )

    def _tile(self, group: Expr, channel: Expr, channels: int, y: Expr, x: Expr, height: int, width: int) -> None:
        """Emit one register tile: clear, accumulate over taps and k, apply the epilogue."""
        nest, work = self.nest, self.work
        lanes = work.lanes
        vectors = [(at, lanes) for at in range(0, channels, lanes)] if work.padded_weights else pieces(channels, lanes)
        pixels = [(y + i, x + j) for i in range(height) for j in range(width)]
        stride = sum(count for _, count in vectors)
        accumulators = nest.allocate("acc", (len(pixels) * stride,), work.dtype)
        zero = tirx.const(0, work.dtype)
        for row in range(len(pixels)):
            for at, count in vectors:
                nest.store(accumulators, [ramp(row * stride + at, count)], splat(zero, count))
        self._accumulate(accumulators, stride, group, channel, vectors, pixels)
        store_tile(
            nest, work.outputs, accumulators, (height, width), stride, pieces(channels, lanes),
            lambda i, j, c: work.coordinates(self.outer, group, y + i, x + j, channel + c),
        )  # fmt: skip

    def _accumulate(
        self, acc: Var, stride: int, group: Expr, channel: Expr, vectors: list[tuple[int, int]], pixels: list[tuple[Expr, Expr]]
    ) -> None:
        nest, work = self.nest, self.work
        with ExitStack() as loops:
            taps = [loops.enter_context(nest.loop(f"tap{axis}", extent)) for axis, extent in enumerate(work.taps)]
            k = loops.enter_context(nest.loop("k", work.depth))
            weights = [
                nest.bind(f"w{at}", work.load_weights(self.outer, group, channel + at, taps, k, count)) for at, count in vectors
            ]
            for row, (y, x) in enumerate(pixels):
                value = nest.bind(f"a{row}", self.load_rows(self.outer, group, y, x, taps, k))
                for weight, (at, count) in zip(weights, vectors, strict=True):
                    where = [ramp(row * stride + at, count)]
                    nest.store(acc, where, tirx.BufferLoad(acc, where) + splat(value, count) * weight)


def _kinds(split: Split, index: Expr) -> list[tuple[int, Expr | None]]:
    """Return (tile size, condition under which the tile `index` has it)."""
    if not split.long_tiles:
        return [(split.short, None)]
    return [(split.short + 1, index < split.long_tiles), (split.short, index >= split.long_tiles)]


def _guarded(nest: Nest, condition: Expr | None, body: Callable[[], None]) -> None:
    if condition is None:
        body()
        return
    with nest.when(condition):
        body()
