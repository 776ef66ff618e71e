"""The two products of an attention over a block of rows: the micro-kernel of `contraction` on buffers of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.attention.read import Block, Operand
from backends.cpu.kernels.shared.contraction import Contraction, emit_inside
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packed_panels import PackedPanels
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.stitching.loops import stitch
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64, pieces, ramp, splat, vector_runs
from backends.tensorir.roles import Output
from backends.tensorir.stages import Stage, substitute

Load = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class Right:
    """The right operand of a product.

    Attributes:
        load: (k, channel, count) -> the load of `count` neighbouring channels.
        padded: Whether the last vector of a row is a whole one.
    """

    load: Callable[[Expr, Expr, int], Expr]
    padded: bool

    def behind(self, step: Expr, channel: Expr) -> Right:
        """Return the operand from step `step` of k and from `channel` on."""
        return replace(self, load=lambda k, n, count: self.load(step + k, channel + n, count))


@dataclass(frozen=True)
class BlockProduct:
    """The rows of a block times a right operand.

    Attributes:
        depth, channels: Elements of a row, and of a row of the result.
        left: (row of the block, step of k) -> the element there.
    """

    depth: int
    channels: int
    left: Load
    right: Right


@dataclass(frozen=True)
class Products:
    """Emits products for the vectors of `machine`."""

    nest: Nest
    machine: Machine

    @property
    def lanes(self) -> int:
        """Elements of a vector."""
        return self.machine.vector_lanes

    def packed(self, operand: Operand, batch: Sequence[Expr], tile: RegisterTile) -> Right:
        """Return a copy of the right operand of a batch, whose rows are contiguous, a panel of the tile after the
        other."""
        lanes, channels, width = self.lanes, operand.place.extent, tile.vectors * self.lanes
        panels = -(-channels // width)
        copy = PackedPanels.allocate(
            self.nest, panels, channels=channels, width=width, depth=operand.step.extent, lanes=lanes
        )
        first = int64(0)
        copy.fill(self.nest, lambda n, k, count: operand.at(batch, ramp(n, count), k), first, int64(panels))
        return Right(lambda k, n, count: copy.load(first, n, k, count), padded=True)

    def right(self, operand: Operand, batch: Sequence[Expr]) -> Right:
        """Return the right operand of a batch as it lies, or a copy of it: turned where its rows are not contiguous,
        and with zeros behind rows that end in several narrow vectors, which take as long as whole ones."""
        lanes, depth, channels = self.lanes, operand.step.extent, operand.place.extent
        width = -(-channels // lanes) * lanes
        turned = not operand.is_contiguous(operand.place)
        padded = len(pieces(channels, lanes)) > width // lanes
        if not turned and not padded:
            return Right(lambda k, n, count: operand.at(batch, ramp(n, count), k), padded=False)
        copy = self.nest.allocate(f"{operand.source.name}_copy", (depth * width,))
        if turned:
            self._turn(operand, batch, copy, width)
        with self.nest.loop("k", depth) as k:
            for n, count in () if turned else vector_runs(self.nest, channels, lanes):
                self.nest.store(copy, [ramp(k * width + n, count)], operand.at(batch, ramp(n, count), k))
            for n, count in pieces(width - channels, lanes):
                self.nest.store(copy, [ramp(k * width + (channels + n), count)], splat(tirx.const(0, "float32"), count))
        return Right(lambda k, n, count: tirx.BufferLoad(copy, [ramp(k * width + n, count)]), padded=padded)

    def _turn(self, operand: Operand, batch: Sequence[Expr], copy: Var, width: int) -> None:
        """Emit the transpose of a batch of `operand` into `copy`, rows `width` apart."""
        local = tirx.decl_buffer((operand.step.extent, width), "float32", copy.name)
        value = operand.at(batch, operand.place.var, operand.step.var)
        turn = Stage(local, (operand.step, operand.place), (), value)
        self.nest.add(stitch([turn], {local: copy}, self.machine))

    def multiply(
        self, block: Block, product: BlockProduct, tile: RegisterTile, outputs: Sequence[Output], first: Expr = 0
    ) -> None:
        """Emit a product of a block; the outputs' coordinates count channels from `first`."""
        extents = Extents(
            outer=1, groups=1, height=block.rows, width=1, channels=product.channels, taps=(), depth=product.depth,
            lanes=self.lanes, input_bytes=4 * block.rows * product.depth,
        )  # fmt: skip
        work = Contraction(
            extents, padded_weights=product.right.padded,
            load_rows=lambda outer, group, y, x, taps, k: product.left(y, k),
            load_weights=lambda outer, group, n, taps, k, count: product.right.load(k, n, count),
            coordinates=lambda outer, group, y, x, n: [*block.batch, block.first + y, first + n],
            outputs=tuple(outputs),
        )  # fmt: skip
        emit_inside(self.nest, work, tile)


def multiplied(output: Output, factor: Expr) -> Output:
    """Return `output` with the product's result times `factor` in its place."""
    return replace(output, value=substitute(output.value, {output.accumulator: output.accumulator * factor}))


def row_of(output: Output, block: Block) -> Expr:
    """Return which row of a block an element of a product belongs to."""
    return output.coordinates[-2] - block.first
