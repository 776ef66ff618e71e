"""The two products of an attention over a block of rows: the micro-kernel of `contraction` on buffers of the core.

Few rows with keys that lie row by row, as in a step of a decoder with the keys of before, are dot products. To turn
2048 keys of 128 for one query took 3.1 ms of 6.0, and all of it is 2 where nothing is turned (16 heads, 33.5 MB, two
threads on two vCPUs of Zen 3):

    for vector of keys
      for row
        acc[lanes] = 0                                    registers, one for each key
        for vector of steps: acc[i] += q[row, steps] * keys[i, steps]
        scores[row, vector] = epilogue(sum over the lanes of each)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.attention.plan import AttentionPlan
from backends.cpu.kernels.attention.read import Block, Operand
from backends.cpu.kernels.shared.contraction import Contraction, emit_inside
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.packed_panels import PackedPanels
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.kernels.shared.stitching.loops import stitch
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64, pieces, ramp, splat, vector_runs
from backends.tensorir.roles import Output
from backends.tensorir.stages import Stage, substitute
from backends.tensorir.vectors import sum_square

Load = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True)
class Right:
    """The right operand of a product.

    Attributes:
        load: (k, channel, count) -> the load of `count` neighbouring channels; `by_row`, of as many steps of k.
        padded: Whether the last vector of a row is a whole one.
        by_row: Whether the steps of k of a channel lie together, and are whole vectors.
    """

    load: Callable[[Expr, Expr, int], Expr]
    padded: bool
    by_row: bool = False

    def behind(self, step: Expr, channel: Expr) -> Right:
        """Return the operand from step `step` of k and from `channel` on."""
        return replace(self, load=lambda k, n, count: self.load(step + k, channel + n, count))


@dataclass(frozen=True)
class BlockProduct:
    """The rows of a block times a right operand.

    Attributes:
        depth, channels: Elements of a row, and of a row of the result.
        left: (row of the block, step of k) -> the element there, or the vector for a ramp of steps.
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

    def keys(self, operand: Operand, batch: Sequence[Expr], plan: AttentionPlan) -> Right:
        """Return the right operand of the first product in the form of `plan`."""
        if plan.dots:
            return Right(lambda k, n, count: operand.at(batch, n, ramp(k, count)), padded=False, by_row=True)
        return self.packed(operand, batch, plan.scores) if plan.packed else self.right(operand, batch)

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
        if product.right.by_row:
            self._dots(block, product, outputs, first)
            return
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

    def _dots(self, block: Block, product: BlockProduct, outputs: Sequence[Output], first: Expr) -> None:
        """Emit a product of dot products, a vector of channels at a time."""
        epilogue = Epilogue.prepare(self.nest, tuple(outputs), self.lanes)

        def add(n: Expr, many: int) -> None:
            with self.nest.loop("row", block.rows) as y:
                sums = RegisterRows(self.nest, 1, [(0, self.lanes)])
                sums.write(0, 0, self._sums(product, y, n, many))
                epilogue.store(
                    self.nest, sums, (1, 1), pieces(many, self.lanes),
                    lambda i, j, channel: [*block.batch, block.first + y, first + n + channel],
                )  # fmt: skip

        whole, rest = divmod(product.channels, self.lanes)
        with self.nest.loop("vector", whole) as vector:
            add(vector * self.lanes, self.lanes)
        if rest:
            add(int64(whole * self.lanes), rest)

    def _sums(self, product: BlockProduct, y: Expr, n: Expr, many: int) -> Expr:
        """Emit the dot products of a row with `many` channels from `n` on, and return them, in the first lanes."""
        lanes = self.lanes
        return dot_products(
            self.nest, lambda k: product.left(y, ramp(k, lanes)), lambda i, k: product.right.load(k, n + i, lanes),
            many=many, depth=product.depth, lanes=lanes,
        )  # fmt: skip


def dot_products(
    nest: Nest, row: Callable[[Expr], Expr], key: Callable[[int, Expr], Expr], *, many: int, depth: int, lanes: int
) -> Expr:
    """Emit the dot products of a row with `many` keys, up to a vector of them, and return them, in the first lanes.

    `row`, and `key` for the number of a key, return the vector from a step on, of `depth` steps: whole vectors.
    """
    sums = RegisterRows(nest, lanes, [(0, lanes)])
    with nest.loop("k", depth // lanes) as k:
        elements = nest.bind("row", row(k * lanes))
        for i in range(many):
            sums.accumulate(i, 0, elements * key(i, k * lanes))
    return sum_square(nest, [sums.read(i, 0) for i in range(lanes)], lanes)


def multiplied(output: Output, factor: Expr) -> Output:
    """Return `output` with the product's result times `factor` in its place."""
    return replace(output, value=substitute(output.value, {output.accumulator: output.accumulator * factor}))


def row_of(output: Output, block: Block) -> Expr:
    """Return which row of a block an element of a product belongs to."""
    return output.coordinates[-2] - block.first
