"""Two products of batches as one kernel, the attention among them: a product, a softmax, other row-wise work or none,
and a product with its rows.

The loops of one task, which has a chunk of the blocks of rows of one batch, where whole rows of scores fit the caches
nearest to the core:

    for block of rows
      for panel of keys                          scores[rows, keys]; or dot products: `products`
        scores = epilogue(q x k)                 the micro-kernel of `contraction`: scale, mask
      for row
        weights = exp(scores - max), sum         the loops that `stitching` writes
      for panel of channels
        outputs = epilogue(weights x v / sum)    the micro-kernel

Longer rows of a softmax are those of `attention_online`, which cuts the keys too. The scores never leave the core.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.attention.emit_online import OnlineBlock
from backends.cpu.kernels.attention.plan import AttentionPlan, padded
from backends.cpu.kernels.attention.products import BlockProduct, Products, Right, multiplied, row_of
from backends.cpu.kernels.attention.read import (
    ATTENTION,
    AttentionStages,
    Block,
    Rows,
    defer_factor,
    in_block,
    local_shape,
    operand,
)
from backends.cpu.kernels.attention.softmax import weighing_rows
from backends.cpu.kernels.shared.split import Split
from backends.cpu.kernels.shared.stitching.loops import stitch
from backends.cpu.machine import Machine
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import flat_buffer
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Output, compose
from backends.tensorir.stages import dtype_of, shape_of


def emit_attention(func: tirx.PrimFunc, stages: AttentionStages, machine: Machine, point: AttentionPlan) -> Scheduled:
    """Return the loops of a point."""
    nest = Nest()
    behind = {stage.buffer for stage in (stages.values, *stages.behind)}
    values = compose(stages.values.buffer, stages.behind, [param for param in func.params if param in behind])
    _Tasks(nest, stages, point, machine, values).emit()
    return Scheduled(func.with_body(nest.finish()), ATTENTION, str(point))


@dataclass(frozen=True)
class _Tasks:
    """The loops around the blocks.

    Attributes:
        values: What is stored for each element of the second product.
    """

    nest: Nest
    stages: AttentionStages
    plan: AttentionPlan
    machine: Machine
    values: tuple[Output, ...]

    def emit(self) -> None:
        """Add the parallel loop over tasks."""
        nest, stages, plan = self.nest, self.stages, self.plan
        *batch, height, keys = shape_of(stages.scores.buffer)
        blocks = Split(-(-height // plan.rows), plan.chunks)
        tasks = prod(batch) * blocks.count
        products = Products(nest, self.machine)
        online = plan.keys < keys
        with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as task:
            chunk, image = tirx.floormod(task, blocks.count), tirx.floordiv(task, blocks.count)
            which = tuple(nest.bind(f"batch{axis}", index) for axis, index in enumerate(unravel(image, batch)))
            held, behind = operand(stages.scores, 1), operand(stages.values, 1)
            right, values = products.keys(held, which, plan), products.right(behind, which)
            make = OnlineBlock.make if online else _WholeRows.make
            form = make(products, stages, plan, self.machine, self.values)
            with nest.loop("block", blocks.size(chunk)) as index:
                start = (blocks.start(chunk) + index) * plan.rows
                first = nest.bind("first", int64(tirx.min(start, height - plan.rows)))
                form.emit(Block(which, first, plan.rows), right, values)


@dataclass(frozen=True)
class _WholeRows:
    """Writes blocks of whole rows.

    Attributes:
        scores, values: What is stored for each element of the two products.
        rows: What lies between.
        local: The part of a stage's buffer that belongs to a block of rows.
        memory: What holds such a part where a product reads or writes it, row by row.
    """

    products: Products
    stages: AttentionStages
    plan: AttentionPlan
    machine: Machine
    scores: tuple[Output, ...]
    rows: Rows
    values: tuple[Output, ...]
    local: Mapping[Var, Var]
    memory: Mapping[Var, Var]

    @staticmethod
    def make(
        products: Products, stages: AttentionStages, plan: AttentionPlan, machine: Machine, values: tuple[Output, ...]
    ) -> _WholeRows:
        """Return the form, its buffers allocated."""
        chain = stages.chain
        rows = weighing_rows(stages)
        if chain.channels < chain.keys:
            rows = defer_factor(rows)
        entering = stages.entering
        scores, stride = shape_of(stages.scores.buffer), padded(chain.keys, machine.vector_lanes)
        local = {
            buffer: tirx.decl_buffer(local_shape(buffer, scores, plan.rows, stride), dtype_of(buffer), buffer.name)
            for buffer in (*entering, *(stage.buffer for stage in rows.stages))
        }
        kept = dict.fromkeys([*entering, rows.buffer, *([rows.factor] if rows.factor is not None else [])])
        memory = {local[b]: flat_buffer(prod(shape_of(local[b])), dtype_of(b), b.name) for b in kept}
        for buffer in memory.values():
            products.nest.add(tirx.AllocBuffer(buffer))
        return _WholeRows(
            products=products,
            stages=stages,
            plan=plan,
            machine=machine,
            scores=compose(stages.scores.buffer, stages.epilogue, entering),
            rows=rows,
            values=values,
            local=local,
            memory=memory,
        )

    def emit(self, block: Block, keys: Right, values: Right) -> None:
        """Add the loops of a block."""
        self._scores(block, keys)
        if self.rows.stages:
            self.products.nest.add(stitch(in_block(self.rows.stages, block, self.local), self.memory, self.machine))
        self._values(block, values)

    def _held(self, buffer: Var) -> Var:
        return self.memory[self.local[buffer]]

    def _at(self, buffer: Var, row: Expr, column: Expr = 0) -> Expr:
        """Return the place in memory of an element of what a block has of `buffer`."""
        _, *columns = shape_of(self.local[buffer])
        return row * prod(columns) + column

    def _scores(self, block: Block, right: Right) -> None:
        """Emit the first product of a block, into the buffers that the rows are made of."""
        left, chain = operand(self.stages.scores, 0), self.stages.chain
        outputs = [
            replace(
                output, buffer=self._held(output.buffer),
                indices=(self._at(output.buffer, row_of(output, block), output.indices[-1]),),
            )
            for output in self.scores
        ]  # fmt: skip
        scored = BlockProduct(chain.depth, chain.keys, lambda y, k: left.at(block.batch, block.first + y, k), right)
        self.products.multiply(block, scored, self.plan.scores, outputs)

    def _values(self, block: Block, right: Right) -> None:
        """Emit the second product of a block and what is behind it."""
        rows, factor, outputs, chain = self.rows.buffer, self.rows.factor, list(self.values), self.stages.chain
        weights = self._held(rows)
        if factor is not None:
            held = self._held(factor)
            outputs = [
                multiplied(output, tirx.BufferLoad(held, [self._at(factor, row_of(output, block))]))
                for output in outputs
            ]
        weighted = BlockProduct(
            chain.keys, chain.channels, lambda y, k: tirx.BufferLoad(weights, [self._at(rows, y, k)]), right
        )
        self.products.multiply(block, weighted, self.plan.values, outputs)
