"""Depthwise convolution over N, H, W, C activations, vectorised over channels, and convolution in narrow groups, of
which a vector has several.

    parallel (n, output row)
      for block of channels
        for x tile of `width` pixels                tiles at the border know which taps fall outside
          acc[pixels] = sum over the window         `tile`
          outputs = epilogue(acc)

Nothing is padded or copied: rows outside shorten the loop over those of the window, columns outside are left out of the
border tiles.
"""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx
from tvm.tirx import ForKind

from backends.cpu.kernels.depthwise.tile import TileWriter
from backends.cpu.kernels.shared.convolution.depthwise_tiles import DepthwiseTile
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of


def emit_depthwise(func: tirx.PrimFunc, roles: Roles, machine: Machine, point: DepthwiseTile) -> Scheduled:
    """Return the vectorised form of `func`."""
    nest = Nest()
    _TaskWriter(TileWriter.of(nest, roles, machine), roles, point).emit()
    return Scheduled(func.with_body(nest.finish()), roles.kind, str(point))


@dataclass(frozen=True)
class _TaskWriter:
    """Writes the tasks, each of which has an output row and a chunk of the channels."""

    tiles: TileWriter
    roles: Roles
    point: DepthwiseTile

    @property
    def columns(self) -> Split:
        """The register tiles of a row."""
        return Split.of(self.roles.shape[2], self.point.tile.width)

    def emit(self) -> None:
        """Emit the tasks: rows in order, so that the window's other rows are still in cache; few rows are cut by
        channels too."""
        nest = self.tiles.nest
        batch, height, _, channels = self.roles.shape
        block = self.point.tile.vectors * self.tiles.lanes
        blocks = -(-channels // block)
        chunks = Split(blocks, self.point.chunks)
        with nest.loop("task", batch * height * chunks.count, ForKind.PARALLEL) as task:
            chunk, y = tirx.floormod(task, chunks.count), tirx.floormod(tirx.floordiv(task, chunks.count), height)
            n = tirx.floordiv(task, chunks.count * height)
            tile = self.columns.longest * block
            row = _Row(self, n, y, Epilogue.prepare(nest, self.roles.outputs, tile))
            with nest.loop("block", chunks.size(chunk)) as step:
                index = chunks.start(chunk) + step
                rest = channels - (blocks - 1) * block
                for condition, size in (
                    [(index < blocks - 1, block), (index >= blocks - 1, rest)] if rest != block else [(None, block)]
                ):
                    with guard(nest, condition):
                        row.emit(index * block, size)


@dataclass(frozen=True)
class _Row:
    """One output row."""

    work: _TaskWriter
    n: Expr
    y: Expr
    epilogue: Epilogue

    def emit(self, channel: Expr, channels: int) -> None:
        """Emit a block of channels: border tiles one by one, those that see only the image in a loop."""
        columns = self.work.columns
        inner = [tile for tile in range(columns.count) if self._is_inner(tile)]
        for tile in range(columns.count):
            if tile not in inner:
                self._tile(channel, channels, columns.start(tile), self._width(tile), columns.start(tile))
        for width in sorted({self._width(tile) for tile in inner}):
            tiles = [tile for tile in inner if self._width(tile) == width]
            with self.work.tiles.nest.loop("x_tile", len(tiles)) as step:
                self._tile(channel, channels, columns.start(tiles[0]) + step * width, width, None)

    def _width(self, tile: int) -> int:
        return self.work.columns.short + (tile < self.work.columns.long_tiles)

    def _is_inner(self, tile: int) -> bool:
        first, taps = self.work.columns.start(tile), range(self.work.tiles.window.kernel[1])
        return all(self._inside(first + i, rx) for i in range(self._width(tile)) for rx in taps)

    def _inside(self, x: int, rx: int) -> bool:
        tiles = self.work.tiles
        return bool(0 <= tiles.column(x, rx) < shape_of(tiles.data)[2])

    def _tile(self, channel: Expr, channels: int, x: Expr, width: int, fixed: int | None) -> None:
        """Emit one register tile; `fixed` is its first column where taps may fall outside."""
        tiles = self.work.tiles
        registers = tiles.sums(
            (self.n, self.y, x), width, channel, channels,
            lambda i, rx: fixed is None or self._inside(fixed + i, rx),
        )  # fmt: skip
        self.epilogue.store(
            tiles.nest, registers, (1, width), registers.parts, lambda _, i, c: [self.n, self.y, x + i, channel + c]
        )
