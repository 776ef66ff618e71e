"""The layers before the last one of a kernel of which only a call knows how many rows it has: products that make the
rows of products, block by block.

    for block of rows                                 some of the highest tile
      rows before = loops of stages, or layers        `RowMaker`, or this again
      for product, tile of rows                       `open_products`
        sums                                          the function of `tile_sums`
        rows = epilogue(sums)

A block may have any number of rows, so that there is one body for all. Products of 16 rows beside those of one row, in
TensorIR, took LLVM three times as long as the function.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Protocol

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.matmul.emit import Room, put
from backends.cpu.kernels.matmul.read import RowProducts
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.open_panels import OpenPanels, PanelProduct
from backends.cpu.kernels.shared.open_products import OpenProducts
from backends.cpu.kernels.shared.row_tiles import RowTiles
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.stages import shape_of

_BLOCK_ROWS = 16
"""Of a block at least."""


class Fills(Protocol):
    """What makes the rows of products."""

    def fill(self, nest: Nest, outer: Expr, first: Expr, end: Expr) -> Callable[..., Expr]:
        """Add what makes rows first..end-1; return how an element is loaded."""


@dataclass(frozen=True)
class OpenLayers:
    """Makes the rows of `parts`, which products make.

    Attributes:
        works: Those products.
        panels: How they are cut.
        before: Makes their rows; None where these are given.
        longest: Rows of the largest task.
    """

    parts: RowProducts
    machine: Machine
    works: tuple[Contraction, ...]
    panels: OpenPanels
    before: Fills | None
    longest: Expr

    @staticmethod
    def block_of(panels: OpenPanels) -> int:
        """Return how many rows a block has at most."""
        tallest = panels.table.tile.height
        return -(-_BLOCK_ROWS // tallest) * tallest

    def fill(self, nest: Nest, outer: Expr, first: Expr, end: Expr) -> Callable[..., Expr]:
        """See `Fills`."""
        layer, block = self.parts.first, OpenLayers.block_of(self.panels)
        assert layer is not None, "products make the rows"
        made = Room.of(nest, "rows", self.longest, self.parts.depth, self.machine)
        held = {buffer: Room.of(nest, buffer.name, block, shape_of(buffer)[-1], self.machine) for buffer in layer.held}
        scratch = PanelProduct.scratch(nest, self.panels, self.works[0].extents.lanes)
        with nest.loop("block", tirx.truncdiv(end - first + (block - 1), int64(block))) as index:
            start = nest.settle("start", first + index * block)
            stop = nest.settle("stop", tirx.min(start + block, end))
            places = {**held, self.parts.rows: replace(made, first=start - first)}
            load_rows = self.before.fill(nest, outer, start, stop) if self.before else None
            products = OpenProducts.of(nest, self._works(start, places), self.panels, load_rows, scratch)
            tiles = RowTiles.of(nest, self.panels.table, start, stop - start)
            width = self.panels.table.tile.vectors
            products.emit([(int64(0), int64(-(-work.extents.vectors // width))) for work in self.works], tiles)
        return made.load_from(first)

    def _works(self, start: Var, places: Mapping[Var, Room]) -> list[Contraction]:
        """Return the products, which store a block of rows that begins at `start` to `places`."""
        layer = self.parts.first
        assert layer is not None, "products make the rows"
        return [
            replace(work, outputs=tuple(put(output, product, start, places) for output in product.outputs))
            for work, product in zip(self.works, layer.products, strict=True)
        ]
