"""Matmuls with the same rows, of which only a call knows how many there are, whose sums one function computes.

    for product
      for block of panels, tile of rows, part `open_panels`
        sums of the tile in its panels        the function, `tile_sums`
        for panel: outputs = epilogue(sums)   of the product
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.open_panels import OpenPanels, PanelProduct, PanelTile, TileRows
from backends.cpu.kernels.shared.row_tiles import RowTiles
from backends.cpu.kernels.shared.tile_sums import TileCall, TileSums
from backends.tensorir.accesses import flat_index
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.stages import dims_of

LoadRows = Callable[..., Expr]


def has_function(works: Sequence[Contraction]) -> bool:
    """Return whether the function computes the sums of `works`, matmuls whose elements of a row lie together."""
    extents = [work.extents for work in works]
    of_float32 = all(work.arithmetic is FLOAT32 and work.padded_weights for work in works)
    return of_float32 and all(each.taps == () and each.groups == 1 and each.depth > 0 for each in extents)


@dataclass(frozen=True)
class OpenProducts:
    """The products of a task.

    Attributes:
        load_rows: Loads an element of their rows.
        each: What stores each of them.
        fetches_rows: Whether the rows behind a tile are fetched while it is computed.
    """

    nest: Nest
    panels: OpenPanels
    load_rows: LoadRows
    each: tuple[PanelProduct, ...]
    fetches_rows: bool = False

    @staticmethod
    def of(
        nest: Nest, works: Sequence[Contraction], panels: OpenPanels, load_rows: LoadRows | None,
        scratch: Var | None = None,
    ) -> OpenProducts:  # fmt: skip
        """Return the products, which use the same scratch one after the other; `scratch` is as in `PanelProduct.of`,
        and `load_rows` is None where the rows are those of a tensor."""
        waits = load_rows is None and any(work.extents.waits_for_rows for work in works)
        load_rows = load_rows or works[0].load_rows
        if scratch is None:
            scratch = PanelProduct.scratch(nest, panels, works[0].extents.lanes)
        each = tuple(PanelProduct.of(nest, work, panels, load_rows, scratch=scratch) for work in works)
        return OpenProducts(nest, panels, load_rows, each, fetches_rows=waits)

    def emit(self, shares: Sequence[tuple[Expr, Expr]], tiles: RowTiles) -> None:
        """Emit over all `tiles` the share of each product: its first panel, and how many there are."""
        nest, extents = self.nest, [one.kernel.work.extents for one in self.each]
        table, lanes = tiles.table, extents[0].lanes
        function = TileSums(table.heights, table.tile.vectors, lanes, len(self.each), self.fetches_rows)
        nest.use_functions(function.llvm_ir)
        last = [sizes.vectors - function.vectors for sizes in extents]
        with nest.loop("product", len(self.each)) as index:
            # TVM makes loop variables narrow whose ends it sees, and the call would be one of another function.
            product = nest.settle("product", index)
            first, many, end = (
                nest.settle(name, _pick(product, values))
                for name, values in zip(("first", "many", "last"), (*zip(*shares, strict=True), last), strict=True)
            )
            with self.panels.loop(nest, first, many, tiles) as tile, self.panels.parts(nest, tile) as part:
                nest.add(self._sums(function, product, (tile, part), end))
                for place, one in enumerate(self.each):
                    with guard(nest, product.equal(place) if len(self.each) > 1 else None):
                        one.store(part, TileRows(part.first))

    def _sums(self, function: TileSums, product: Expr, tiles: tuple[PanelTile, PanelTile], last: Expr) -> tirx.Stmt:
        """Return the call for a part of a tile: `tiles` are the whole one and that."""
        kernel, zero, (tile, part) = self.each[0].kernel, int64(0), tiles
        at = TileCall(
            height=part.height, product=product, first=part.panel, panels=part.panels,
            before=part.panel - tile.panel, all_panels=tile.panels, last=last, pitch=self._pitch(),
            stride=kernel.work.extents.depth * function.lanes, depth=kernel.work.extents.depth,
            room=self.panels.room(function.lanes),
        )  # fmt: skip
        weights = [one.kernel.work.load_weights(zero, zero, zero, (), zero, 1) for one in self.each]
        sums = tirx.BufferLoad(kernel.epilogue.scratch, [zero])
        return function.call(at, self._row(part.first), sums, weights)

    def _row(self, y: Expr) -> tirx.BufferLoad:
        """Return the load of the first element of a row."""
        return self.load_rows(int64(0), int64(0), y, int64(0), (), int64(0))

    def _pitch(self) -> Expr:
        """Return how many elements lie between rows."""
        one, two = (self._row(int64(y)) for y in range(2))
        analyzer, shape = Analyzer(), dims_of(one.source)
        places = (flat_index(shape, list(load.indices), analyzer) for load in (two, one))
        return analyzer.simplify(next(places) - next(places))


def _pick(place: Expr, values: Sequence[Expr]) -> Expr:
    """Return, as an expression, the value at `place`."""
    found = values[0]
    for number, value in enumerate(values[1:], 1):
        found = tirx.Select(place.equal(number), int64(value), int64(found))
    return int64(found)
