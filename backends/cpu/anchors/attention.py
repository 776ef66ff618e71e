"""Attention as one kernel: a product, a softmax or other row-wise work, and a product with its rows.

The loops of one task, which has a chunk of the blocks of rows of one batch:

    for block of rows
      for panel of keys                          scores[rows, keys], in the caches nearest to the core
        scores = epilogue(q x k)                 the micro-kernel of `contraction`: scale, mask
      for row
        weights = exp(scores - max), sum         the loops that `templates/stitching.py` writes
      for panel of channels
        outputs = epilogue(weights x v / sum)    the micro-kernel

The scores never leave the core. FlashAttention (Dao 2022) and MCFuser (SC'24) also cut the keys into blocks, for rows
too long for a cache; those stay in three kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.anchors.attention_plan import AttentionPlan, padded, plan_attention
from backends.cpu.anchors.attention_stages import (
    AttentionStages,
    Block,
    Rows,
    defer_factor,
    in_block,
    local_shape,
    operand,
    read_attention,
)
from backends.cpu.anchors.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.anchors.epilogue import Epilogue
from backends.cpu.anchors.extents import Extents
from backends.cpu.anchors.matmul import broadcast_indices, unravel
from backends.cpu.anchors.register_tile import RegisterTile
from backends.cpu.anchors.roles import Output, compose
from backends.cpu.anchors.split import Split, tile_count
from backends.cpu.emit import Expr, Nest, int64, pieces, ramp, splat, vector_runs
from backends.cpu.templates.nests import allocate
from backends.cpu.templates.result import Declined, NotRecognized, Scheduled
from backends.cpu.templates.stages import Stage, dtype_of, shape_of, substitute
from backends.cpu.templates.stitching import stitch
from fusion.context import Machine
from partition.chains import Chain


@dataclass(frozen=True)
class ScheduleAttention:
    """Template of kernels with two anchors."""

    name: str = "attention"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the loops; declines what is not two products of float32 with row-wise stages between."""
        try:
            stages = read_attention(func)
            plan = plan_attention(_chain(stages), machine, threads)
            if plan is None:
                return Declined("a block of rows does not fit the cache")
            nest = Nest()
            _Emitter.make(nest, func, stages, plan, machine).emit()
        except NotRecognized as reason:
            return Declined(str(reason))
        return Scheduled(func.with_body(nest.finish()), self.name, str(plan))


def _chain(stages: AttentionStages) -> Chain:
    *batch, rows, keys = shape_of(stages.scores.buffer)
    depth = shape_of(operand(stages.scores, 0))[-1]
    return Chain(prod(batch), rows, depth, keys, shape_of(stages.values.buffer)[-1])


@dataclass(frozen=True)
class Right:
    """The right operand of a product.

    Attributes:
        load: (k, channel, count) -> the load of `count` neighbouring channels.
        padded: Whether the last vector of a row is a whole one.
    """

    load: Callable[[Expr, Expr, int], Expr]
    padded: bool


@dataclass(frozen=True)
class _Emitter:
    """Writes the loops of a plan.

    Attributes:
        scores, values: What is stored for each element of the two products.
        rows: What lies between.
        local: The part of a stage's buffer that belongs to a block of rows.
        memory: What holds such a part where a product reads or writes it, row by row.
    """

    nest: Nest
    stages: AttentionStages
    plan: AttentionPlan
    machine: Machine
    scores: tuple[Output, ...]
    rows: Rows
    values: tuple[Output, ...]
    local: dict[Var, Var]
    memory: dict[Var, Var]

    @staticmethod
    def make(
        nest: Nest, func: tirx.PrimFunc, stages: AttentionStages, plan: AttentionPlan, machine: Machine
    ) -> _Emitter:
        chain = _chain(stages)
        rows = Rows(list(stages.rows), stages.rows[-1].buffer)
        if chain.channels < chain.keys:
            rows = defer_factor(rows)
        entering = stages.entering
        scores, stride = shape_of(stages.scores.buffer), padded(chain.keys, machine.vector_lanes)
        local = {
            buffer: tirx.decl_buffer(local_shape(buffer, scores, plan.rows, stride), dtype_of(buffer), buffer.name)
            for buffer in (*entering, *(stage.buffer for stage in rows.stages))
        }
        if any(dtype_of(buffer) != "float32" for buffer in local.values()):
            raise NotRecognized("a stage between the products is not of float32")
        kept = [*entering, rows.buffer, *([rows.factor] if rows.factor is not None else [])]
        memory = {local[b]: allocate(prod(shape_of(local[b])), dtype_of(b), b.name) for b in kept}
        behind = {stage.buffer for stage in (stages.values, *stages.behind)}
        written = [param for param in func.params if param in behind]
        return _Emitter(
            nest, stages, plan, machine, compose(stages.scores.buffer, stages.epilogue, entering), rows,
            compose(stages.values.buffer, stages.behind, written), local, memory,
        )  # fmt: skip

    def emit(self) -> None:
        """Add the parallel loop over tasks."""
        nest, plan, chain = self.nest, self.plan, _chain(self.stages)
        *batch, height, _ = shape_of(self.stages.scores.buffer)
        blocks = Split(-(-height // plan.rows), plan.chunks)
        tasks = chain.batch * blocks.count
        with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
            for buffer in self.memory.values():
                nest.add(tirx.AllocBuffer(buffer))
            chunk, image = tirx.floormod(task, blocks.count), tirx.floordiv(task, blocks.count)
            which = tuple(nest.bind(f"batch{axis}", index) for axis, index in enumerate(unravel(image, batch)))
            keys, values = (self._whole_vectors(operand(product, 1), which) for product in self._products)
            with nest.loop("block", tile_count(blocks, chunk)) as index:
                start = (blocks.start(chunk) + index) * plan.rows
                block = Block(which, nest.bind("first", int64(tirx.min(start, height - plan.rows))), plan.rows)
                self._scores(block, chain, keys)
                nest.add(stitch(in_block(self.rows.stages, block, self.local), self.memory, self.machine))
                self._values(block, chain, values)

    @property
    def _products(self) -> tuple[Stage, Stage]:
        return self.stages.scores, self.stages.values

    def _whole_vectors(self, source: Var, batch: Sequence[Expr]) -> Right:
        """Return the right operand of a batch: as it lies, or copied with zeros behind its rows where they end in
        several narrow vectors, which take as long as whole ones."""
        nest, lanes = self.nest, self.machine.vector_lanes
        *outer, depth, channels = shape_of(source)
        at = broadcast_indices(outer, batch)
        width = -(-channels // lanes) * lanes
        if len(pieces(channels, lanes)) == width // lanes:
            return Right(lambda k, n, count: tirx.BufferLoad(source, [*at, k, ramp(n, count)]), padded=False)
        copy = nest.allocate(f"{source.name}_copy", (depth * width,))
        with nest.loop("k", depth) as k:
            for n, count in vector_runs(nest, channels, lanes):
                nest.store(copy, [ramp(k * width + n, count)], tirx.BufferLoad(source, [*at, k, ramp(n, count)]))
            for n, count in pieces(width - channels, lanes):
                nest.store(copy, [ramp(k * width + (channels + n), count)], splat(tirx.const(0, "float32"), count))
        return Right(lambda k, n, count: tirx.BufferLoad(copy, [ramp(k * width + n, count)]), padded=True)

    def _held(self, buffer: Var) -> Var:
        return self.memory[self.local[buffer]]

    def _at(self, buffer: Var, row: Expr, column: Expr = 0) -> Expr:
        """Return the place in memory of an element of what a block has of `buffer`."""
        _, *columns = shape_of(self.local[buffer])
        return row * prod(columns) + column

    def _scores(self, block: Block, chain: Chain, right: Right) -> None:
        """Emit the first product of a block, into the buffers that the rows are made of."""
        left = operand(self.stages.scores, 0)
        batch = broadcast_indices(shape_of(left)[:-2], block.batch)
        outputs = [
            replace(
                output, buffer=self._held(output.buffer),
                indices=(self._at(output.buffer, _row(output, block), output.indices[-1]),),
            )
            for output in self.scores
        ]  # fmt: skip
        self._multiply(
            block, chain.keys, chain.depth, right, self.plan.scores, outputs,
            lambda y, k: tirx.BufferLoad(left, [*batch, block.first + y, k]),
        )  # fmt: skip

    def _values(self, block: Block, chain: Chain, right: Right) -> None:
        """Emit the second product of a block and what is behind it."""
        rows, factor, outputs = self.rows.buffer, self.rows.factor, list(self.values)
        weights = self._held(rows)
        if factor is not None:
            held = self._held(factor)
            outputs = [
                _multiplied(output, tirx.BufferLoad(held, [self._at(factor, _row(output, block))]))
                for output in outputs
            ]
        self._multiply(
            block, chain.channels, chain.keys, right, self.plan.values, outputs,
            lambda y, k: tirx.BufferLoad(weights, [self._at(rows, y, k)]),
        )  # fmt: skip

    def _multiply(
        self, block: Block, channels: int, depth: int, right: Right, tile: RegisterTile, outputs: Sequence[Output],
        load_row: Callable[[Expr, Expr], Expr],
    ) -> None:  # fmt: skip
        """Emit the rows of a block times `right`."""
        extents = Extents(
            outer=1, groups=1, height=block.rows, width=1, channels=channels, taps=(), depth=depth,
            lanes=self.machine.vector_lanes, input_bytes=4 * block.rows * depth,
        )  # fmt: skip
        work = Contraction(
            extents, padded_weights=right.padded,
            load_rows=lambda outer, group, y, x, taps, k: load_row(y, k),
            load_weights=lambda outer, group, n, taps, k, count: right.load(k, n, count),
            coordinates=lambda outer, group, y, x, n: [*block.batch, block.first + y, n],
            outputs=tuple(outputs),
        )  # fmt: skip
        panels = -(-extents.vectors // tile.vectors)
        epilogue = Epilogue.prepare(self.nest, work.outputs, tile.rows * tile.vectors * self.machine.vector_lanes)
        kernel = MicroKernel(self.nest, work, Blocking(tile, 1, 1, panels), work.load_rows, int64(0), epilogue)
        split = Split.of(block.rows, tile.height)
        kernel.emit(int64(0), panels, split, int64(0), split.count)


def _row(output: Output, block: Block) -> Expr:
    """Return which row of a block an element of a product belongs to."""
    return output.coordinates[-2] - block.first


def _multiplied(output: Output, factor: Expr) -> Output:
    return replace(output, value=substitute(output.value, {output.accumulator: output.accumulator * factor}))
