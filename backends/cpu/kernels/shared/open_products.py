"""Matmuls with the same rows, of which only a call knows how many there are, whose sums one function computes.

    for product
      for block of panels, tile of rows, panel  `open_panels`
        sums of the tile                        the function, `tile_sums`
        outputs = epilogue(sums)                of the product
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer

from backends.cpu.costs import FETCHED_TILES
from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.contraction import Contraction
from backends.cpu.kernels.shared.extents import vectors_are_lines
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
class SumsByFunction:
    """That the function computes the sums of a kernel.

    Attributes:
        fetch_results: Whether it fetches what these are stored to, as `lies_in_rows` allows.
    """

    fetch_results: bool


@dataclass(frozen=True)
class OpenProducts:
    """The products of a task.

    Attributes:
        load_rows: Loads an element of their rows.
        each: What stores each of them.
        fetches_rows: Whether the rows behind a tile are fetched while it is computed.
        fetches_results: Whether what a tile's sums are stored to is fetched while these are computed.
    """

    nest: Nest
    panels: OpenPanels
    load_rows: LoadRows
    each: tuple[PanelProduct, ...]
    fetches_rows: bool = False
    fetches_results: bool = False

    @staticmethod
    def of(
        nest: Nest, works: Sequence[Contraction], panels: OpenPanels, load_rows: LoadRows | None,
        scratch: Var | None = None, fetches_results: bool = False,
    ) -> OpenProducts:  # fmt: skip
        """Return the products, which use the same scratch one after the other; `scratch` is as in `PanelProduct.of`,
        and `load_rows` is None where the rows are those of a tensor."""
        waits = load_rows is None and any(work.extents.outer == 1 and work.extents.waits_for_rows for work in works)
        load_rows = load_rows or works[0].load_rows
        if scratch is None:
            scratch = PanelProduct.scratch(nest, panels, works[0].extents.lanes)
        each = tuple(PanelProduct.of(nest, work, panels, load_rows, scratch=scratch) for work in works)
        return OpenProducts(nest, panels, load_rows, each, fetches_rows=waits, fetches_results=fetches_results)

    def emit(self, shares: Sequence[tuple[Expr, Expr]], tiles: RowTiles) -> None:
        """Emit over all `tiles` the share of each product: its first panel, and how many there are."""
        nest, extents = self.nest, [one.kernel.work.extents for one in self.each]
        table, lanes = tiles.table, extents[0].lanes
        function = TileSums(
            table.heights, table.tile.vectors, lanes, products=len(self.each), fetches_rows=self.fetches_rows,
            fetches_results=self.fetches_results, fetches_panels=self._has_blocks and not vectors_are_lines(lanes),
        )  # fmt: skip
        nest.call_functions(function.llvm_ir, finished=function.is_finished)
        last = [sizes.vectors - function.vectors for sizes in extents]
        with nest.loop("product", len(self.each)) as index:
            # TVM makes loop variables narrow whose ends it sees, and the call would be one of another function.
            product = nest.settle("product", index)
            first, many, end = (
                nest.settle(name, _pick(product, values))
                for name, values in zip(("first", "many", "last"), (*zip(*shares, strict=True), last), strict=True)
            )
            with self.panels.loop(nest, first, many, tiles) as tile, nest.loop("panel", tile.panels) as turn:
                vector = nest.settle("vector", tirx.min((tile.panel + turn) * function.vectors, end))
                nest.add(self._sums(function, product, tile, turn, vector))
                for place, one in enumerate(self.each):
                    with guard(nest, product.equal(place) if len(self.each) > 1 else None):
                        one.store(int64(0), vector, TileRows(tile.first), tile.height)

    @property
    def _has_blocks(self) -> bool:
        """Whether the weights of a product are more than L2 keeps."""
        width = self.panels.table.tile.vectors
        return any(-(-one.kernel.work.extents.vectors // width) > self.panels.block for one in self.each)

    def _sums(self, function: TileSums, product: Expr, tile: PanelTile, turn: Expr, vector: Expr) -> tirx.Stmt:
        """Return the call for panel `turn` of a tile, which begins with `vector`."""
        kernel, zero = self.each[0].kernel, int64(0)
        works = [one.kernel.work for one in self.each] if self.fetches_results else []
        pitches = [_pitch(partial(_result, work, channel=0)) for work in works]
        later, later_bytes = self._later(function, tile, turn) if function.fetches_panels else (zero, zero)
        at = TileCall(
            height=tile.height, product=product, vector=vector, turn=turn, panels=tile.panels, pitch=_pitch(self._row),
            result_pitch=_pick(product, pitches) if pitches else zero,
            stride=kernel.work.extents.depth * function.lanes, depth=kernel.work.extents.depth,
            later=later, later_bytes=later_bytes,
        )  # fmt: skip
        weights = [one.kernel.work.load_weights(zero, zero, zero, (), zero, 1) for one in self.each]
        sums = tirx.BufferLoad(kernel.epilogue.scratch, [zero])
        results = [_result(work, tile.first, 0) for work in works]
        return function.call(at, self._row(tile.first), sums, weights, results)

    def _later(self, function: TileSums, tile: PanelTile, turn: Expr) -> tuple[Expr, Expr]:
        """Return how many elements behind the panel `turn` of a tile begins what is fetched with it, and how many bytes
        of that a step of k fetches: the first tile of a block fetches the next panel, the others a part each of that
        in the next block, unless they are so many that they hardly wait for it."""
        number, tiles = tile.place
        depth, width = self.each[0].kernel.work.extents.depth, function.vectors * function.lanes
        others = tirx.max(tiles - 1, int64(1))
        part = self.nest.settle("later_part", tirx.truncdiv(4 * width + (others - 1), others))
        is_first = number.equal(0)
        panels = tirx.Select(is_first, int64(1), tile.panels)
        skipped = tirx.Select(is_first, int64(0), tirx.truncdiv((number - 1) * part * depth, int64(4)))
        is_there = tirx.all(turn + panels < tile.panels + tile.after, tiles <= FETCHED_TILES)
        each = tirx.Select(is_first, int64(4 * width), part)
        return panels * (width * depth) + skipped, tirx.Select(is_there, each, int64(0))

    def _row(self, y: Expr) -> tirx.BufferLoad:
        """Return the load of the first element of a row."""
        return self.load_rows(int64(0), int64(0), y, int64(0), (), int64(0))


def lies_in_rows(work: Contraction) -> bool:
    """Return whether the elements of a row of the first output lie together, and all rows equally far apart, in the
    tensor as `work` has it."""
    analyzer, (y, channel) = Analyzer(), (Var(name, "int64") for name in ("y", "channel"))
    begin, row, place = (_place(_result(work, *at), analyzer) for at in ((0, 0), (1, 0), (y, channel)))
    return bool(analyzer.can_prove_equal(place - begin, y * (row - begin) + channel))


def _result(work: Contraction, y: Expr, channel: Expr) -> tirx.BufferLoad:
    """Return the load of an element of the first output."""
    output, zero = work.outputs[0], int64(0)
    indices, _ = output.at(work.coordinates(zero, zero, int64(y), zero, int64(channel)), tirx.const(0, "float32"))
    return tirx.BufferLoad(output.buffer, indices)


def _pitch(load: Callable[[Expr], tirx.BufferLoad]) -> Expr:
    """Return how many elements lie between what `load` returns for neighbouring rows."""
    analyzer = Analyzer()
    begin, behind = (_place(load(int64(y)), analyzer) for y in range(2))
    return analyzer.simplify(behind - begin)


def _place(load: tirx.BufferLoad, analyzer: Analyzer) -> Expr:
    """Return which element of its tensor is loaded."""
    return flat_index(dims_of(load.source), list(load.indices), analyzer)


def _pick(place: Expr, values: Sequence[Expr]) -> Expr:
    """Return, as an expression, the value at `place`."""
    found = values[0]
    for number, value in enumerate(values[1:], 1):
        found = tirx.Select(place.equal(number), int64(value), int64(found))
    return int64(found)
