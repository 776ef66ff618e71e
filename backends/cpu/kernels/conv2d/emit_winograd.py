"""3x3 convolution by Winograd's minimal filtering: 4 (F4) or 2.25 (F2) times fewer multiplications than the sum.

The loops of one task, which has a block of the image's tiles and a chunk of the panels of output channels:

    for tile, vector of input channels             inputs[size * size][tile][channel], half of L2 at most
      inputs = B^T d B
    for panel of output channels
      for product of size * size                   a matrix multiplication each: the micro-kernel of `contraction`
        products[product] = inputs[product] x weights[panel][product]
      for tile, vector of the panel
        outputs = epilogue(A^T products A)
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import NamedTuple

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan, WinogradShape
from backends.cpu.kernels.shared.convolution.winograd_transform import square
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.tensorir.emit import Expr, Nest, guard, int64, pieces, ramp, splat, vector_runs
from backends.tensorir.result import Repack, Scheduled
from backends.tensorir.roles import Output, Roles

NAME = "winograd"


def emit_winograd(func: tirx.PrimFunc, roles: Roles, shape: WinogradShape, plan: WinogradPlan) -> Scheduled:
    """Return `func` in its Winograd form, which takes weights that are transformed before the run."""
    data, packed = roles.operands
    products = plan.transform.size**2
    weights = tirx.decl_buffer((shape.vectors, products, shape.depth, shape.lanes), "float32", packed.name)
    nest = Nest()
    _Emitter(nest=nest, shape=shape, plan=plan, data=data, weights=weights, outputs=roles.outputs).emit()
    params = [weights if param.same_as(packed) else param for param in func.params]
    position = next(index for index, param in enumerate(func.params) if param.same_as(packed))
    made = tirx.PrimFunc(params, nest.finish(), func.ret_type, func.attrs)
    return Scheduled(made, NAME, str(plan), repack=Repack(position, plan.transform.pack))


class _Corner(NamedTuple):
    """The first element of the result under a tile."""

    image: Expr
    y: Expr
    x: Expr


@dataclass(frozen=True)
class _Emitter:
    """Writes the loops of a plan."""

    nest: Nest
    shape: WinogradShape
    plan: WinogradPlan
    data: Var
    weights: Var
    outputs: tuple[Output, ...]

    def emit(self) -> None:
        """Add the parallel loop over tasks."""
        nest, shape, plan = self.nest, self.shape, self.plan
        tiles = Split(self._tiles_down * self._tiles_across, plan.blocks)
        panels = Split(-(-shape.vectors // plan.tile.vectors), plan.chunks)
        products, rows = plan.transform.size**2, tiles.longest
        tasks = shape.batch * tiles.count * panels.count
        with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
            chunk, block = task % panels.count, task // panels.count % tiles.count
            image = task // (panels.count * tiles.count)
            first, many = nest.bind("first_tile", int64(tiles.start(block))), tile_count(tiles, block)
            # Rows a vector apart from a power of two: those of a register tile would share a few sets of L1.
            inputs = nest.allocate("inputs", (products, rows, shape.depth + shape.lanes))
            made = nest.allocate("products", (products, rows, plan.tile.vectors * shape.lanes))
            epilogue = Epilogue.prepare(nest, self.outputs, plan.transform.tile**2 * shape.lanes)
            with nest.loop("tile", many) as tile:
                self._transform_inputs(inputs, tile, self._corner(image, first + tile))
            with nest.loop("panel", tile_count(panels, chunk)) as index:
                panel = nest.bind("panel_at", int64(panels.start(chunk)) + index)
                with nest.loop("product", products) as number:
                    self._multiply(inputs, made, number, panel, rows)
                with nest.loop("tile", many) as tile:
                    self._transform_products(made, epilogue, tile, panel, self._corner(image, first + tile))

    @property
    def _tiles_down(self) -> int:
        return -(-self.shape.out_height // self.plan.transform.tile)

    @property
    def _tiles_across(self) -> int:
        return -(-self.shape.out_width // self.plan.transform.tile)

    def _corner(self, image: Expr, tile: Expr) -> _Corner:
        """Return the first row and column of the result under a tile."""
        across, size = self._tiles_across, self.plan.transform.tile
        y = self.nest.bind("y", tirx.floordiv(tile, across) * size)
        return _Corner(image, y, self.nest.bind("x", tirx.floormod(tile, across) * size))

    def _transform_inputs(self, inputs: Var, tile: Expr, corner: _Corner) -> None:
        nest, shape, size = self.nest, self.shape, self.plan.transform.size
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
            transformed = square(self.plan.transform.data, values, partial(_keep, nest, lanes))
            for number, value in enumerate(_flat(transformed)):
                nest.store(inputs, [number, tile, ramp(channel, lanes)], value)

    def _multiply(self, inputs: Var, made: Var, number: Expr, panel: Expr, rows: int) -> None:
        """Emit products[number] = inputs[number] x weights[panel][number], over all rows of the block: where it has
        one less, the last is not read again."""
        shape, tile = self.shape, self.plan.tile
        whole = tile.vectors * shape.lanes
        extents = Extents(
            outer=1, groups=1, height=rows, width=1, channels=shape.vectors * shape.lanes, taps=(), depth=shape.depth,
            lanes=shape.lanes, input_bytes=4 * rows * shape.depth,
        )  # fmt: skip
        where = tuple(Var(name, "int64") for name in ("row", "channel"))
        result = Var("accumulator", "float32")
        work = Contraction(
            extents, padded_weights=True,
            load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(inputs, [number, y, k]),
            load_weights=lambda outer, group, n, taps, k, lanes: tirx.BufferLoad(
                self.weights, [tirx.floordiv(n, shape.lanes), number, k, ramp(0, lanes)]
            ),
            coordinates=lambda outer, group, y, x, n: [y, n - panel * whole],
            outputs=(Output(made, where, result, (number, *where), result),),
        )  # fmt: skip
        kernel = MicroKernel(
            nest=self.nest,
            work=work,
            blocking=Blocking(tile, 1, 1, 1),
            load_rows=work.load_rows,
            outer=number,
            epilogue=Epilogue(work.outputs, None),
        )
        split = Split.of(rows, tile.height)
        kernel.emit(panel, 1, split, int64(0), split.count)

    def _transform_products(self, made: Var, epilogue: Epilogue, tile: Expr, panel: Expr, corner: _Corner) -> None:
        nest, shape, vectors = self.nest, self.shape, self.plan.tile.vectors
        image, y, x = corner
        size, lanes = self.plan.transform.size, shape.lanes
        with nest.loop("part", tirx.min(vectors, shape.vectors - panel * vectors)) as part:
            at = ramp(part * lanes, lanes)
            values = [[tirx.BufferLoad(made, [i * size + j, tile, at]) for j in range(size)] for i in range(size)]
            results = square(self.plan.transform.result, values, partial(_keep, nest, lanes))
            channel = nest.bind("channel", (panel * vectors + part) * lanes)
            for (rows, tall), (columns, wide) in product(
                self._edges(shape.out_height, y), self._edges(shape.out_width, x)
            ):
                with guard(nest, tall), guard(nest, wide):
                    registers = RegisterRows(nest, rows * columns, [(0, lanes)])
                    for row, value in enumerate(_flat([line[:columns] for line in results[:rows]])):
                        registers.write(row, 0, value)
                    for last, kept in self._kept_channels(channel):
                        with guard(nest, last):
                            epilogue.store(
                                nest, registers, (rows, columns), kept,
                                lambda i, j, c: [image, y + i, x + j, channel + c],
                            )  # fmt: skip

    def _edges(self, extent: int, start: Expr) -> list[tuple[int, Expr | None]]:
        """Return (rows of the tile inside the result, when), for the tiles along one axis that begin at `start`."""
        whole, rest = divmod(extent, self.plan.transform.tile)
        if not rest:
            return [(self.plan.transform.tile, None)]
        border = whole * self.plan.transform.tile
        cut = [(rest, start >= border if whole else None)]
        return [(self.plan.transform.tile, start < border), *cut] if whole else cut

    def _kept_channels(self, channel: Expr) -> list[tuple[Expr | None, list[tuple[int, int]]]]:
        """Return (when, vectors to store): the last vector of the result may be cut."""
        lanes, rest = self.shape.lanes, self.shape.channels % self.shape.lanes
        if not rest:
            return [(None, [(0, lanes)])]
        border = self.shape.channels - rest
        cut = [(channel >= border if border else None, pieces(rest, lanes))]
        return [(channel < border, [(0, lanes)]), *cut] if border else cut


def _keep(nest: Nest, lanes: int, value: Expr) -> Expr:
    """Give `value` a register: TVM's simplifier would write it out again at each use of a variable."""
    buffer = nest.allocate("kept", (lanes,))
    nest.store(buffer, [ramp(0, lanes)], value)
    return tirx.BufferLoad(buffer, [ramp(0, lanes)])


def _flat(rows: list[list[Expr]]) -> list[Expr]:
    return [value for row in rows for value in row]
