"""3x3 convolution by Winograd's method over images of which only a call knows the sizes.

The loops are those of `emit_winograd`, over blocks of tiles that are cut at the call:

    parallel task: (image, tiles, panels)            `shared/open_images`, tiles being its rows, of all images if small
      for tile: inputs = B^T d B
      for panel of output channels
        for product, tile of rows                    `shared/row_tiles`
          products[product] = inputs[product] x weights[panel][product]
        for tile: outputs = epilogue(A^T products A)
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.conv2d.winograd_tiles import Corner, TileTransforms, flat
from backends.cpu.kernels.shared.contraction import Blocking, MicroKernel
from backends.cpu.kernels.shared.convolution.winograd_plan import WinogradPlan, WinogradShape
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.open_images import OpenGrid, OpenTask
from backends.cpu.kernels.shared.open_split import ceil_div
from backends.cpu.kernels.shared.row_tiles import Bodies, RowTable, RowTiles
from backends.cpu.kernels.shared.split import Split
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64, ramp
from backends.tensorir.result import Repack, Scheduled
from backends.tensorir.roles import Output, Roles
from backends.tensorir.stages import dims_of

_LOSS = 1.25
"""How much longer a block may take for want of a body for its last tiles."""


def emit_open_winograd(
    func: tirx.PrimFunc, roles: Roles, machine: Machine, threads: int, typical: tuple[WinogradShape, WinogradPlan]
) -> Scheduled:
    """Return the loops for images of any size, which take weights that are transformed before the run.

    Args:
        typical: The shape at typical sizes, and its plan, whose transform and size of a block are taken.
    """
    (data, packed), (shape, plan) = roles.operands, typical
    rows = Split(-(-shape.out_height // plan.transform.tile) * -(-shape.out_width // plan.transform.tile), plan.blocks)
    batch, height, width, _ = dims_of(data)
    shape = replace(
        shape, batch=batch, height=height, width=width, out_height=roles.shape[1], out_width=roles.shape[2]
    )
    weights = tirx.decl_buffer(
        (shape.vectors, plan.transform.size**2, shape.depth, shape.lanes), "float32", packed.name
    )
    nest = Nest()
    tiles = TileTransforms(nest, shape, plan.transform, data)
    table = _table(shape, rows.longest, machine)
    panels = -(-shape.vectors // table.tile.vectors)
    grid = _grid(nest, (int64(batch), int64(tiles.down) * tiles.across), rows.longest, panels, threads)
    with grid.tasks(nest) as task:
        _Block.of(tiles, table, weights, roles.outputs, rows.longest).emit(task)
    params = [weights if param.same_as(packed) else param for param in func.params]
    position = next(index for index, param in enumerate(func.params) if param.same_as(packed))
    made = tirx.PrimFunc(params, nest.finish(), func.ret_type, func.attrs)
    size = plan.transform.tile
    tile = f"F({size}x{size}) {grid}; {table}; {rows.longest} tiles"
    return Scheduled(made, "winograd", tile, repack=Repack((position,), plan.transform.pack))


def _grid(nest: Nest, images: tuple[Expr, Expr], most: int, panels: int, threads: int) -> OpenGrid:
    """Return the tasks of so many (images, tiles of each), of up to `most` tiles.

    A task reads all weights of its panels, so small images are taken as one, whose blocks are as many as threads take
    in whole turns. Where the panels are enough for all threads, fewer blocks than threads share those out instead.
    """
    batch, each = images
    small = nest.settle("small", each * 2 <= most)
    tiles = nest.settle("tiles", tirx.Select(small, each * batch, each))
    blocks = nest.settle("blocks", tirx.max(ceil_div(tiles, most), int64(1)))
    turns = ceil_div(tiles, ceil_div(blocks, threads) * threads)
    shared = tirx.Select(blocks >= threads, turns, int64(most)) if panels >= threads else turns
    longest = tirx.Select(small, tirx.max(shared, int64(1)), int64(most))
    return OpenGrid(tirx.Select(small, int64(1), batch), tiles, longest, panels, threads)


def _table(shape: WinogradShape, rows: int, machine: Machine) -> RowTable:
    """Return the register tiles of the products of blocks of up to so many tiles."""
    extents = Extents(
        outer=1, groups=1, height=rows, width=1, channels=shape.vectors * shape.lanes, taps=(), depth=shape.depth,
        lanes=shape.lanes, input_bytes=4 * rows * shape.depth,
    )  # fmt: skip
    return RowTable.choose([extents], machine, Bodies(_LOSS))


@dataclass(frozen=True)
class _Block:
    """Writes the tiles of a task.

    Attributes:
        inputs, made: The transformed images, and their products with a panel of the weights.
        most: Tiles of a task.
    """

    tiles: TileTransforms
    table: RowTable
    weights: Var
    inputs: Var
    made: Var
    epilogue: Epilogue
    most: int

    @staticmethod
    def of(
        tiles: TileTransforms, table: RowTable, weights: Var, outputs: tuple[Output, ...], most: int
    ) -> _Block:
        """Return the writer, its scratch allocated."""
        nest, shape, products = tiles.nest, tiles.shape, tiles.transform.size**2
        # Rows a vector apart from a power of two, as `emit_winograd` has them.
        inputs = nest.allocate("inputs", (products, most, shape.depth + shape.lanes))
        made = nest.allocate("products", (products, most, table.tile.vectors * shape.lanes))
        epilogue = Epilogue(outputs, nest.allocate("result", (tiles.transform.tile**2 * shape.lanes,)))
        return _Block(tiles, table, weights, inputs=inputs, made=made, epilogue=epilogue, most=most)

    def emit(self, task: OpenTask) -> None:
        """Emit a task."""
        nest, shape = self.tiles.nest, self.tiles.shape
        across = nest.settle("across", int64(self.tiles.across))
        each = nest.settle("each", self.tiles.down * across)

        def corner(tile: Expr) -> Corner:
            place = task.first + tile
            image = nest.settle("image", task.image + tirx.truncdiv(place, each))
            return self.tiles.corner(image, nest.settle("place", tirx.truncmod(place, each)), across)

        many = task.end - task.first
        with nest.loop("tile", many) as tile:
            self.tiles.inputs(self.inputs, tile, corner(tile))
        rows, width = RowTiles.of(nest, self.table, int64(0), many), self.table.tile.vectors
        with nest.loop("panel", task.stop - task.start) as index:
            # The last panel begins so much earlier that it is as wide as the others.
            vector = nest.settle(
                "vector", tirx.min((task.start + index) * width, int64(shape.vectors - width))
            )
            with nest.loop("product", self.tiles.transform.size**2) as number:
                self._multiply(rows, number, vector)
            with nest.loop("tile", many) as tile:
                self._store(tile, vector, corner(tile))

    def _multiply(self, rows: RowTiles, number: Expr, vector: Expr) -> None:
        """Emit made[number] = inputs[number] x weights[number] for the vectors of a panel."""
        nest, lanes, tile = self.tiles.nest, self.tiles.shape.lanes, self.table.tile
        channel = vector * lanes
        work = self.tiles.product(self.inputs, self.weights, self.made, number, (channel, self.most))
        kernel = MicroKernel(
            nest=nest, work=work, blocking=Blocking(tile, 1, 1, 1), load_rows=work.load_rows, outer=number,
            epilogue=Epilogue(work.outputs, None),
        )  # fmt: skip
        with nest.loop("y_tile", rows.count) as step:
            height, y = rows.tile(nest, step)
            for count in rows.bodies(nest, height):
                pixels = [(y + i, int64(0)) for i in range(count)]
                registers = kernel.sums(int64(0), channel, tile.vectors * lanes, pixels)
                for row, part in product(range(count), range(tile.vectors)):
                    at = [number, y + row, ramp(part * lanes, lanes)]
                    nest.store(self.made, at, registers.read(row, part))

    def _store(self, tile: Expr, first_vector: Expr, corner: Corner) -> None:
        """Emit the transform of the products of a tile, and its part inside the result."""
        nest, shape, size = self.tiles.nest, self.tiles.shape, self.tiles.transform.tile
        image, y, x = corner
        rows, columns = (
            nest.settle(name, tirx.min(int64(extent) - start, int64(size)))
            for name, extent, start in (("rows", shape.out_height, y), ("columns", shape.out_width, x))
        )
        with nest.loop("part", self.table.tile.vectors) as part:
            results = self.tiles.results(self.made, tile, part)
            channel = nest.settle("channel", (first_vector + part) * shape.lanes)
            registers = RegisterRows(nest, size**2, [(0, shape.lanes)])
            for place, value in enumerate(flat(results)):
                registers.write(place, 0, value)
            self.epilogue.keep(nest, registers)
            for last, kept in self.tiles.kept_channels(channel):
                with guard(nest, last):
                    self.epilogue.store_kept(
                        nest, (rows, columns), shape.lanes, kept,
                        lambda i, j, c: [image, y + i, x + j, channel + c], pitch=size,
                    )  # fmt: skip
