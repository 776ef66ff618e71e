"""Attention of which only a call knows the batch, the rows or the keys.

The loops of one task, which has a chunk of the blocks of rows of one batch:

    keys in whole vectors                               and values, where their rows are none; no keys for few rows,
                                                        where they lie row by row
    for block of rows                                   balanced, up to 16 rows
      sums = 0, top = the least number, total = 0
      for block of keys                                 balanced, up to 512 keys: one where they are fewer
        scores = epilogue(q x k)                        `block_products`, `open_rows`
        weights = exp(scores - new top), scale, total   `open_rows`
        sums = sums * scale + weights x v               `block_products`
      outputs = epilogue(sums / total)

Up to 512 keys it is the form of whole rows; beyond, the online one of `emit_online`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.attention.open_packing import Packed, pack
from backends.cpu.kernels.attention.open_plan import DOT_ROWS, MAX_ROW_VECTORS, SINGLE_ROWS, Grid, OpenPlan
from backends.cpu.kernels.attention.open_read import OpenAttention, read_open_attention
from backends.cpu.kernels.attention.open_rows import KeyBlock, OpenRows, RowState
from backends.cpu.kernels.attention.products import dot_products
from backends.cpu.kernels.attention.read import ATTENTION, operand
from backends.cpu.kernels.shared.block_products import OpenProduct, Panels, RowUnits, multiply, multiply_row, row_tiles
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.open_split import OpenSplit, ceil_div
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64, pieces, ramp, splat, vector_runs
from backends.tensorir.result import Scheduled


def emit_open_attention(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of an attention with symbols.

    Raises:
        Declined: It is none, or only a call knows more than the batch and the lengths.
    """
    attention, nest = read_open_attention(func), Nest()
    plan = OpenPlan.of(attention.chain, machine, threads)
    grid = Grid.of(nest, attention.chain, plan)
    tasks = nest.keep("tasks", grid.images * grid.chunks.count)
    if threads == 1:
        _emit_share(nest, attention, plan, grid, machine.vector_lanes, begin=int64(0), many=tasks)
    else:
        with nest.loop("thread", threads, ForKind.PARALLEL) as thread:
            first, end = (nest.keep("share", tirx.floordiv((thread + i) * tasks, threads)) for i in range(2))
            _emit_share(nest, attention, plan, grid, machine.vector_lanes, begin=first, many=end - first)
    return Scheduled(func.with_body(nest.finish()), ATTENTION, str(plan), is_written_out=True)


def _emit_share(
    nest: Nest, attention: OpenAttention, plan: OpenPlan, grid: Grid, lanes: int, begin: Expr, many: Expr
) -> None:
    """Add `many` tasks from `begin` on, which use the same buffers one after the other."""
    scratch = _Scratch.allocate(nest, attention, plan, lanes)
    rows = attention.chain.rows
    with nest.loop("task", many) as index:
        task = nest.keep("task", begin + index)
        image, chunk = tirx.floordiv(task, grid.chunks.count), tirx.floormod(task, grid.chunks.count)
        batch = unravel(image, attention.chain.batch)
        which = tuple(nest.keep(f"batch{axis}", place) for axis, place in enumerate(batch))
        work = _Task(nest, attention, plan, lanes, which, scratch=scratch)
        work.pack()
        start = nest.keep("start", grid.chunks.start(chunk))
        with nest.loop("block", grid.chunks.size(chunk)) as step:
            first = nest.keep("first", grid.blocks.start(start + step) * plan.units.unit)
            size = grid.blocks.size(start + step) * plan.units.unit
            work.emit(first, nest.keep("rows", tirx.min(size, rows - first)))


@dataclass(frozen=True)
class _Scratch:
    """The buffers of a thread.

    Attributes:
        keys, values: Copies of the right operands; None for values that are read as they lie.
        between: Holds the scores.
        sums: The second product so far, `width` elements a row.
    """

    keys: Packed
    values: Packed | None
    between: OpenRows
    sums: Var
    width: int

    @staticmethod
    def allocate(nest: Nest, attention: OpenAttention, plan: OpenPlan, lanes: int) -> _Scratch:
        """Return the buffers, allocated where `nest` stands."""
        chain, stride = attention.chain, plan.keys + lanes
        width = -(-chain.channels // lanes) * lanes
        right, parts = operand(attention.values, 1), pieces(chain.channels, lanes)
        is_direct = right.is_contiguous(right.place) and len(parts) == width // lanes
        size = tirx.max(ceil_div(chain.keys, lanes), 1) * (chain.depth * lanes)
        keys, values = Packed(nest.allocate("keys", (size,)), chain.depth * lanes, lanes), None
        if not is_direct:
            values = Packed(nest.allocate("values", (tirx.max(int64(chain.keys), 1) * width,)), lanes, width)
        state = RowState.allocate(nest, plan.rows) if attention.softmax is not None else None
        scores = nest.allocate("scores", (plan.rows * stride,))
        between = OpenRows(nest, scores, stride, state, attention.entering, rows=plan.rows, lanes=lanes)
        return _Scratch(keys, values, between, nest.allocate("sums", (plan.rows * width,)), width)


@dataclass(frozen=True)
class _Task:
    """The work on one batch.

    Attributes:
        which: The batch.
    """

    nest: Nest
    attention: OpenAttention
    plan: OpenPlan
    lanes: int
    which: tuple[Expr, ...]
    scratch: _Scratch

    @property
    def takes_dots(self) -> Expr:
        """Whether scores are dot products."""
        chain, keys = self.attention.chain, operand(self.attention.scores, 1)
        is_by_row = keys.is_contiguous(keys.step) and not keys.is_contiguous(keys.place)
        return chain.rows <= DOT_ROWS if is_by_row and chain.depth % self.lanes == 0 else False

    @property
    def between(self) -> OpenRows:
        """What holds the scores."""
        return self.scratch.between

    def pack(self) -> None:
        """Add the copies of the operands."""
        self._one_of(
            self.takes_dots,
            lambda: None,
            lambda: pack(self.nest, operand(self.attention.scores, 1), self.which, self.scratch.keys, self.lanes),
        )
        if self.scratch.values is not None:
            pack(self.nest, operand(self.attention.values, 1), self.which, self.scratch.values, self.lanes)

    def _one_of(self, condition: Expr, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
        """Add what one of two functions adds; where only a call knows which, both behind a test."""
        if isinstance(condition, bool):
            (then if condition else otherwise)()
        else:
            self.nest.choose(condition, then, otherwise)

    def emit(self, first: Expr, rows: Expr) -> None:
        """Add the loops of `rows` rows from `first` on."""
        nest, lanes, all_keys = self.nest, self.lanes, self.attention.chain.keys
        self.between.clear()
        vectors = OpenSplit.of(nest, ceil_div(all_keys, lanes), self.plan.keys // lanes)
        with nest.when(vectors.count.equal(0)), nest.loop("sum", rows * (self.scratch.width // lanes)) as vector:
            nest.store(self.scratch.sums, [ramp(vector * lanes, lanes)], splat(tirx.const(0, "float32"), lanes))
        with nest.loop("keys", vectors.count) as index:
            first_vector = nest.keep("first_vector", vectors.start(index))
            many = nest.keep("vectors", vectors.size(index))
            first_key = nest.keep("first_key", first_vector * lanes)
            keys = nest.keep("many_keys", tirx.min(all_keys - first_key, many * lanes))
            block = KeyBlock(first_key, first_vector, keys, many, index > 0)
            self._one_of(
                self.takes_dots,
                partial(self._dots, first, rows, block),
                partial(self._scores, first, rows, block),
            )
            self.between.write(lambda row, key: [*self.which, first + row, first_key + key], rows, block)
            self._values(rows, block)
        self._finish(first, rows)

    def _dots(self, first: Expr, rows: Expr, block: KeyBlock) -> None:
        """Emit the first product as dot products, a vector of keys at a time; keys behind the last are the last."""
        nest, lanes, last = self.nest, self.lanes, int64(self.attention.chain.keys) - 1
        whole = nest.keep("whole", tirx.floordiv(block.keys, lanes))
        with nest.loop("vector", whole) as vector:
            key = nest.keep("key", block.first + vector * lanes)
            self._dots_of(first, rows, vector, [key + i for i in range(lanes)])
        with nest.when(whole < block.vectors):
            keys = [nest.keep("key", tirx.min(block.first + whole * lanes + i, last)) for i in range(lanes)]
            self._dots_of(first, rows, whole, keys)

    def _dots_of(self, first: Expr, rows: Expr, vector: Expr, keys: Sequence[Expr]) -> None:
        """Emit the dot products of rows with these keys."""
        nest, lanes = self.nest, self.lanes
        left, right = (operand(self.attention.scores, side) for side in range(2))

        def load(i: int, k: Expr) -> Expr:
            return right.at(self.which, keys[i], ramp(k, lanes))

        with nest.loop("row", rows) as row:
            totals = dot_products(
                nest, lambda k: left.at(self.which, first + row, ramp(k, lanes)), load,
                many=lanes, depth=self.attention.chain.depth, lanes=lanes,
            )  # fmt: skip
            nest.store(self.between.scores, [ramp(row * self.between.stride + vector * lanes, lanes)], totals)

    def _scores(self, first: Expr, rows: Expr, block: KeyBlock) -> None:
        """Emit the first product: panels of vectors of keys, then single vectors."""
        nest, lanes, panel = self.nest, self.lanes, self.plan.scores.vectors
        left = operand(self.attention.scores, 0)

        def store(row: Expr, vector: Expr, total: Expr) -> None:
            place = row * self.between.stride + (vector - block.first_vector) * lanes
            nest.store(self.between.scores, [ramp(place, lanes)], total)

        product = OpenProduct(
            depth=self.attention.chain.depth,
            left=lambda row, k: left.at(self.which, first + row, k),
            right=self.scratch.keys.load,
            store=store,
        )

        panels = nest.keep("panels", tirx.floordiv(block.vectors, panel))
        rest = nest.keep("rest", block.vectors - panels * panel)
        with row_tiles(nest, rows, self.plan.units) as tile:
            multiply(nest, product, tile, Panels(block.first_vector, panels, [lanes] * panel))
            if panel > 1:
                multiply(nest, product, tile, Panels(block.first_vector + panels * panel, rest, [lanes]))

    def _values(self, rows: Expr, block: KeyBlock) -> None:
        """Emit the second product, added to what the sums were of the keys before."""
        nest, lanes, panel, between = self.nest, self.lanes, self.plan.values.vectors, self.between
        right, packed, state = operand(self.attention.values, 1), self.scratch.values, self.between.state

        def value(vector: Expr, k: Expr, count: int) -> Expr:
            if packed is not None:
                return packed.load(vector, block.first + k, count)
            return right.at(self.which, ramp(vector * lanes, count), block.first + k)

        def sums(row: Expr, vector: Expr, count: int) -> Expr:
            return tirx.BufferLoad(self.scratch.sums, [ramp(row * self.scratch.width + vector * lanes, count)])

        def start(row: Expr, vector: Expr, count: int) -> Expr:
            before = sums(row, vector, count)
            return before if state is None else before * splat(tirx.BufferLoad(state.scale, [row]), count)

        product = OpenProduct(
            depth=block.keys,
            left=lambda row, k: tirx.BufferLoad(between.scores, [row * between.stride + k]),
            right=value,
            store=lambda row, vector, total: nest.store(
                self.scratch.sums, [ramp(row * self.scratch.width + vector * lanes, int(total.ty.dtype.lanes))], total
            ),
            start=start,
            starts=block.is_later,
        )
        channels = self.attention.chain.channels if packed is None else self.scratch.width
        parts = [count for _, count in pieces(channels, lanes)]
        units = RowUnits(self.plan.values.rows, least=min(4, self.plan.values.rows))

        def single() -> None:
            with nest.loop("row", rows) as row:
                for at in range(0, len(parts), MAX_ROW_VECTORS):
                    multiply_row(nest, product, row, Panels(int64(at), 1, parts[at : at + MAX_ROW_VECTORS]))

        def tiled() -> None:
            with row_tiles(nest, rows, units) as tile:
                for at in range(0, len(parts), panel):
                    multiply(nest, product, tile, Panels(int64(at), 1, parts[at : at + panel]))

        self._one_of(self.attention.chain.rows <= SINGLE_ROWS, single, tiled)

    def _finish(self, first: Expr, rows: Expr) -> None:
        """Emit the division of the sums and what is behind the second product."""
        nest, lanes = self.nest, self.lanes
        epilogue = Epilogue.prepare(nest, self.attention.outputs, lanes)
        with nest.loop("row", rows) as row:
            total, share = self._share(row)
            for at, count in vector_runs(nest, self.attention.chain.channels, lanes):
                registers = RegisterRows(nest, 1, [(0, count)])
                sums = tirx.BufferLoad(self.scratch.sums, [ramp(row * self.scratch.width + at, count)])
                form = self.attention.softmax
                whole = sums if form is None else form.finished(sums * splat(share, count), total, count)
                registers.write(0, 0, whole)
                place = partial(self._place, first + row, at)
                epilogue.store(nest, registers, (1, 1), [(0, count)], place)

    def _share(self, row: Expr) -> tuple[Expr, Expr]:
        """Return the total of a row and what its sums are multiplied by; of no keys they are zeros, as in a product of
        none."""
        state, form, one = self.between.state, self.attention.softmax, tirx.const(1, "float32")
        if state is None or form is None:
            return one, one
        total = tirx.Select(int64(self.attention.chain.keys) > 0, tirx.BufferLoad(state.total, [row]), one)
        return total, self.nest.bind("share", form.share(total))

    def _place(self, row: Expr, at: Expr, i: Expr, j: Expr, channel: Expr) -> list[Expr]:
        return [*self.which, row, at + channel]
