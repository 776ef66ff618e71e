"""3x3 convolution by Winograd's minimal filtering: 4 (F4) or 2.25 (F2) times fewer multiplications than the sum.

Weights that only the run knows are transformed first, by all threads. The loops of one task, which has a block of the
image's tiles and a chunk of the panels of output channels:

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
from itertools import product

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.conv2d.winograd_tiles import Corner, TileTransforms, flat
from backends.cpu.kernels.shared.contraction import Blocking, MicroKernel
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan, WinogradShape
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.split import Split
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.result import Repack, Scheduled
from backends.tensorir.roles import Output, Roles

NAME = "winograd"


def emit_winograd(func: tirx.PrimFunc, roles: Roles, shape: WinogradShape, plan: WinogradPlan) -> Scheduled:
    """Return `func` in its Winograd form, which takes weights that are transformed before the run, where compiling
    knows them."""
    data, packed = roles.operands
    nest, form = Nest(), (shape.vectors, plan.transform.size**2, shape.depth, shape.lanes)
    tiles = TileTransforms(nest, shape, plan.transform, data)
    if not shape.is_known:
        weights = nest.allocate("weights", form)
        tiles.weights(weights, packed)
        _Emitter(tiles, plan, weights, roles.outputs).emit()
        return Scheduled(func.with_body(nest.finish()), NAME, str(plan))
    weights = tirx.decl_buffer(form, "float32", packed.name)
    _Emitter(tiles, plan, weights, roles.outputs).emit()
    params = [weights if param.same_as(packed) else param for param in func.params]
    position = next(index for index, param in enumerate(func.params) if param.same_as(packed))
    made = tirx.PrimFunc(params, nest.finish(), func.ret_type, func.attrs)
    return Scheduled(made, NAME, str(plan), repack=Repack((position,), plan.transform.pack))


@dataclass(frozen=True)
class _Emitter:
    """Writes the loops of a plan."""

    tiles: TileTransforms
    plan: WinogradPlan
    weights: Var
    outputs: tuple[Output, ...]

    def emit(self) -> None:
        """Add the parallel loop over tasks."""
        nest, shape, plan = self.tiles.nest, self.tiles.shape, self.plan
        tiles = Split(self.tiles.down * self.tiles.across, plan.blocks)
        panels = Split(-(-shape.vectors // plan.tile.vectors), plan.chunks)
        products, rows = plan.transform.size**2, tiles.longest
        tasks = shape.batch * tiles.count * panels.count
        with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
            chunk, block = task % panels.count, task // panels.count % tiles.count
            image = task // (panels.count * tiles.count)
            first, many = nest.bind("first_tile", int64(tiles.start(block))), tiles.size(block)
            # Rows a vector apart from a power of two: those of a register tile would share a few sets of L1.
            inputs = nest.allocate("inputs", (products, rows, shape.depth + shape.lanes))
            made = nest.allocate("products", (products, rows, plan.tile.vectors * shape.lanes))
            epilogue = Epilogue.prepare(nest, self.outputs, plan.transform.tile**2 * shape.lanes)
            with nest.loop("tile", many) as tile:
                self.tiles.inputs(inputs, tile, self._corner(image, first + tile))
            with nest.loop("panel", panels.size(chunk)) as index:
                panel = nest.bind("panel_at", int64(panels.start(chunk)) + index)
                with nest.loop("product", products) as number:
                    self._multiply(inputs, made, number, panel, rows)
                with nest.loop("tile", many) as tile:
                    self._transform_products(made, epilogue, tile, panel, self._corner(image, first + tile))

    def _corner(self, image: Expr, tile: Expr) -> Corner:
        return self.tiles.corner(image, tile, self.tiles.across)

    def _multiply(self, inputs: Var, made: Var, number: Expr, panel: Expr, rows: int) -> None:
        """Emit products[number] = inputs[number] x weights[panel][number], over all rows of the block: where it has
        one less, the last is not read again."""
        shape, tile = self.tiles.shape, self.plan.tile
        work = self.tiles.product(inputs, self.weights, made, number, (panel * (tile.vectors * shape.lanes), rows))
        kernel = MicroKernel(
            nest=self.tiles.nest,
            work=work,
            blocking=Blocking(tile, 1, 1, 1),
            load_rows=work.load_rows,
            outer=number,
            epilogue=Epilogue(work.outputs, None),
        )
        split = Split.of(rows, tile.height)
        kernel.emit(panel, 1, split, int64(0), split.count)

    def _transform_products(self, made: Var, epilogue: Epilogue, tile: Expr, panel: Expr, corner: Corner) -> None:
        nest, shape, vectors = self.tiles.nest, self.tiles.shape, self.plan.tile.vectors
        image, y, x = corner
        lanes = shape.lanes
        with nest.loop("part", tirx.min(vectors, shape.vectors - panel * vectors)) as part:
            results = self.tiles.results(made, tile, part)
            channel = nest.bind("channel", (panel * vectors + part) * lanes)
            for (rows, tall), (columns, wide) in product(
                self._edges(shape.out_height, y), self._edges(shape.out_width, x)
            ):
                with guard(nest, tall), guard(nest, wide):
                    registers = RegisterRows(nest, rows * columns, [(0, lanes)])
                    for row, value in enumerate(flat([line[:columns] for line in results[:rows]])):
                        registers.write(row, 0, value)
                    for last, kept in self.tiles.kept_channels(channel):
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
