"""Attention by blocks of rows and keys, for rows of scores that no cache near the core holds.

The loops of a block of rows (Milakov & Gimelshein 2018; FlashAttention-2, Dao 2023):

    sums = 0, top = the least number, total = 0
    for block of keys
      scores = epilogue(q x k)                          the micro-kernel of `contraction`: scale, mask
      for row
        weights = exp(scores - new top), scale, total   the loops that `stitching` writes
      sums = sums * scale + weights x v                 the micro-kernel
    outputs = epilogue(sums / total)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.attention.plan import AttentionPlan, padded
from backends.cpu.kernels.attention.products import BlockProduct, Products, Right, row_of
from backends.cpu.kernels.attention.read import AttentionStages, Block, operand
from backends.cpu.kernels.attention.softmax import Online, find_softmax, form_of
from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.stitching.loops import stitch
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, int64, ramp, splat, vector_runs
from backends.tensorir.roles import Output, compose
from backends.tensorir.stages import shape_of


@dataclass(frozen=True)
class OnlineBlock:
    """Writes blocks of rows.

    Attributes:
        scores: What is stored for each element of the first product; one output.
        values: What is stored for each element of the second product.
        online: What a block of rows keeps.
        memory: What holds its buffers.
        sums: The second product so far, row by row.
    """

    products: Products
    stages: AttentionStages
    plan: AttentionPlan
    machine: Machine
    scores: Output
    values: tuple[Output, ...]
    online: Online
    memory: Mapping[Var, Var]
    sums: Var

    @staticmethod
    def make(
        products: Products, stages: AttentionStages, plan: AttentionPlan, machine: Machine, values: tuple[Output, ...]
    ) -> OnlineBlock:
        """Return the form, its buffers allocated."""
        online = Online.of(plan.rows, padded(plan.keys, machine.vector_lanes))
        (scores,) = compose(stages.scores.buffer, stages.epilogue, [find_softmax(stages)])
        memory = {buffer: products.nest.allocate(buffer.name, (prod(shape_of(buffer)),)) for buffer in online.all}
        sums = products.nest.allocate("sums", (plan.rows * stages.chain.channels,))
        return OnlineBlock(
            products=products,
            stages=stages,
            plan=plan,
            machine=machine,
            scores=scores,
            values=values,
            online=online,
            memory=memory,
            sums=sums,
        )

    def emit(self, block: Block, keys: Right, values: Right) -> None:
        """Add the loops of a block."""
        nest, size, all_keys = self.products.nest, self.plan.keys, self.stages.chain.keys
        self._clear()
        whole, rest = divmod(all_keys, size)
        with nest.loop("keys", whole) as index:
            self._keys(block, keys, values, nest.bind("key", index * size), size)
        if rest:
            self._keys(block, keys, values, int64(whole * size), rest)
        self._finish(block)

    def _clear(self) -> None:
        nest, lanes = self.products.nest, self.machine.vector_lanes
        start = {self.memory[buffer]: value for buffer, value in self.online.start().items()} | {self.sums: 0.0}
        for buffer, value in start.items():
            for at, count in vector_runs(nest, shape_of(buffer)[0], lanes):
                nest.store(buffer, [ramp(at, count)], splat(tirx.const(value, "float32"), count))

    def _keys(self, block: Block, keys: Right, values: Right, first: Expr, many: int) -> None:
        """Emit a block of `many` keys from `first` on."""
        zero, chain, plan, online = int64(0), self.stages.chain, self.plan, self.online
        left = operand(self.stages.scores, 0)
        _, stride = shape_of(online.scores)
        scores, weights = (self.memory[buffer] for buffer in (online.scores, online.weights))
        column = row_of(self.scores, block) * stride + (self.scores.coordinates[-1] - first)
        scored = BlockProduct(
            chain.depth, many, lambda y, k: left.at(block.batch, block.first + y, k), keys.behind(zero, first)
        )
        output = replace(self.scores, buffer=scores, indices=(column,))
        self.products.multiply(block, scored, plan.scores, [output], first)
        self.products.nest.add(stitch(online.stages(block.rows, many), self.memory, self.machine))
        weighted = BlockProduct(
            many, chain.channels, lambda y, k: tirx.BufferLoad(weights, [y * stride + k]), values.behind(first, zero)
        )
        self.products.multiply(block, weighted, plan.values, [self._summed(block)])

    def _summed(self, block: Block) -> Output:
        """Return how the sums follow from an element of the product with a block of values."""
        (output, *_), channels = self.values, self.stages.chain.channels
        row = row_of(output, block)
        place = row * channels + output.coordinates[-1]
        scale = tirx.BufferLoad(self.memory[self.online.scale], [row])
        value = tirx.BufferLoad(self.sums, [place]) * scale + output.accumulator
        return replace(output, buffer=self.sums, indices=(place,), value=value)

    def _finish(self, block: Block) -> None:
        """Emit the division of the sums and what is behind the second product."""
        nest, lanes, channels = self.products.nest, self.machine.vector_lanes, self.stages.chain.channels
        epilogue = Epilogue.prepare(nest, self.values, lanes)
        totals, form = self.memory[self.online.total], form_of(self.stages)
        with nest.loop("row", block.rows) as row:
            total = tirx.BufferLoad(totals, [row])
            share = nest.bind("share", form.share(total))
            for at, count in vector_runs(nest, channels, lanes):
                registers = RegisterRows(nest, 1, [(0, count)])
                sums = tirx.BufferLoad(self.sums, [ramp(row * channels + at, count)])
                registers.write(0, 0, form.finished(sums * splat(share, count), total, count))
                place = partial(self._place, block, row, at)
                epilogue.store(nest, registers, (1, 1), [(0, count)], place)

    @staticmethod
    def _place(block: Block, row: Expr, at: Expr, i: Expr, j: Expr, channel: Expr) -> list[Expr]:
        return [*block.batch, block.first + row, at + channel]
