"""The tiles of an image that Winograd's method transforms, and of the result that it transforms back."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradShape
from backends.cpu.kernels.shared.convolution.winograd_transform import KERNEL, Transform, square
from backends.cpu.kernels.shared.extents import Extents
from backends.tensorir.emit import Expr, Nest, pieces, ramp, splat, vector_runs
from backends.tensorir.roles import Output


class Corner(NamedTuple):
    """The first element of the result under a tile."""

    image: Expr
    y: Expr
    x: Expr


@dataclass(frozen=True)
class TileTransforms:
    """Writes the transforms of tiles.

    Attributes:
        shape: The sizes of the images may be open.
    """

    nest: Nest
    shape: WinogradShape
    transform: Transform
    data: Var

    @property
    def down(self) -> Expr:
        """Tiles of a column of the result."""
        return _ceildiv(self.shape.out_height, self.transform.tile)

    @property
    def across(self) -> Expr:
        """Tiles of a row of the result."""
        return _ceildiv(self.shape.out_width, self.transform.tile)

    def corner(self, image: Expr, tile: Expr, across: Expr) -> Corner:
        """Return the first row and column of the result under a tile."""
        size = self.transform.tile
        y = self.nest.bind("y", tirx.floordiv(tile, across) * size)
        return Corner(image, y, self.nest.bind("x", tirx.floormod(tile, across) * size))

    def inputs(self, inputs: Var, tile: Expr, corner: Corner) -> None:
        """Emit the transform of the image under a tile."""
        nest, shape, size = self.nest, self.shape, self.transform.size
        image, y, x = corner
        top, left = nest.bind("top", y - shape.top), nest.bind("left", x - shape.left)
        inside = tirx.all(top >= 0, left >= 0, top + size <= shape.height, left + size <= shape.width)
        whole = nest.bind("inside", inside)
        for channel, lanes in vector_runs(nest, shape.depth, shape.lanes):
            cells = [[nest.allocate(f"d{i}{j}", (lanes,)) for j in range(size)] for i in range(size)]
            at = ramp(0, lanes)

            def load(i: int, j: int, channel: Expr = channel, lanes: int = lanes) -> Expr:
                return tirx.BufferLoad(self.data, [image, top + i, left + j, ramp(channel, lanes)])

            with nest.when(whole):
                for i, j in product(range(size), repeat=2):
                    nest.store(cells[i][j], [at], load(i, j))
            with nest.when(tirx.Not(whole)):
                for i, j in product(range(size), repeat=2):
                    nest.store(cells[i][j], [at], splat(tirx.const(0, "float32"), lanes))
                    within = tirx.all(top + i >= 0, top + i < shape.height, left + j >= 0, left + j < shape.width)
                    with nest.when(within):
                        nest.store(cells[i][j], [at], load(i, j))
            values = [[tirx.BufferLoad(cell, [at]) for cell in row] for row in cells]
            transformed = square(self.transform.data, values, partial(_keep, nest, lanes))
            for number, value in enumerate(flat(transformed)):
                nest.store(inputs, [number, tile, ramp(channel, lanes)], value)

    def weights(self, weights: Var, packed: Var) -> None:
        """Emit the transform of `packed` weights, [1, vector, 3, 3, I, lanes], into [vector, size * size, I, lanes]."""
        nest, shape, all_lanes = self.nest, self.shape, ramp(0, self.shape.lanes)
        steps = shape.vectors * shape.depth
        with nest.loop("step", steps, ForKind.PARALLEL if steps > 1 else ForKind.SERIAL) as step:
            vector, k = nest.bind("vector", step // shape.depth), nest.bind("k", step % shape.depth)
            keep = partial(_keep, nest, shape.lanes)
            taps = [
                [keep(tirx.BufferLoad(packed, [0, vector, i, j, k, all_lanes])) for j in range(KERNEL)]
                for i in range(KERNEL)
            ]
            for number, value in enumerate(flat(square(self.transform.weights, taps, keep))):
                nest.store(weights, [vector, number, k, all_lanes], value)

    def product(
        self, inputs: Var, weights: Var, made: Var, number: Expr, block: tuple[Expr, int]
    ) -> Contraction:
        """Return made[number] = inputs[number] x weights[:, number]; `block` has the channel that comes first in `made`
        and its rows."""
        shape, (first, rows) = self.shape, block
        extents = Extents(
            outer=1, groups=1, height=rows, width=1, channels=shape.vectors * shape.lanes, taps=(), depth=shape.depth,
            lanes=shape.lanes, input_bytes=4 * rows * shape.depth,
        )  # fmt: skip
        where = tuple(Var(name, "int64") for name in ("row", "channel"))
        result = Var("accumulator", "float32")
        return Contraction(
            extents, padded_weights=True,
            load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(inputs, [number, y, k]),
            load_weights=lambda outer, group, n, taps, k, lanes: tirx.BufferLoad(
                weights, [tirx.floordiv(n, shape.lanes), number, k, ramp(0, lanes)]
            ),
            coordinates=lambda outer, group, y, x, n: [y, n - first],
            outputs=(Output(made, where, result, (number, *where), result),),
        )  # fmt: skip

    def results(self, made: Var, tile: Expr, part: Expr) -> list[list[Expr]]:
        """Emit the transform of the products of a tile for one of the vectors of a panel; return its rows."""
        size, lanes = self.transform.size, self.shape.lanes
        at = ramp(part * lanes, lanes)
        values = [[tirx.BufferLoad(made, [i * size + j, tile, at]) for j in range(size)] for i in range(size)]
        return square(self.transform.result, values, partial(_keep, self.nest, lanes))

    def kept_channels(self, channel: Expr) -> list[tuple[Expr | None, list[tuple[int, int]]]]:
        """Return (when, vectors to store): the last vector of the result may be cut."""
        lanes, rest = self.shape.lanes, self.shape.channels % self.shape.lanes
        if not rest:
            return [(None, [(0, lanes)])]
        border = self.shape.channels - rest
        cut = [(channel >= border if border else None, pieces(rest, lanes))]
        return [(channel < border, [(0, lanes)]), *cut] if border else cut


def _ceildiv(extent: Expr, size: int) -> Expr:
    return -(-extent // size) if isinstance(extent, int) else tirx.truncdiv(extent + (size - 1), size)


def _keep(nest: Nest, lanes: int, value: Expr) -> Expr:
    """Give `value` a register: TVM's simplifier would write it out again at each use of a variable."""
    buffer = nest.allocate("kept", (lanes,))
    nest.store(buffer, [ramp(0, lanes)], value)
    return tirx.BufferLoad(buffer, [ramp(0, lanes)])


def flat(rows: list[list[Expr]]) -> list[Expr]:
    """Return the values of all rows."""
    return [value for row in rows for value in row]
