"""Takes a kernel with several anchors apart, into the kernels that it would be otherwise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from tvm import tirx
from tvm.ir import Var
from tvm.s_tir.stmt import SBlock, SBlockRealize

from partition.access import ANCHOR, BATCH_MATMUL


@dataclass
class KernelPart:
    """Neighbouring blocks; `made` are the buffers that they write."""

    nests: list[tirx.Stmt] = field(default_factory=list)
    blocks: list[SBlock] = field(default_factory=list)
    made: list[Var] = field(default_factory=list)

    @property
    def has_anchor(self) -> bool:
        return any(ANCHOR in block.annotations for block in self.blocks)

    def reads(self) -> list[Var]:
        """Return the buffers of others that the blocks read."""
        found = dict.fromkeys(region.source for block in self.blocks for region in block.reads)
        return [buffer for buffer in found if buffer not in self.made]


def split_kernel(func: tirx.PrimFunc) -> list[tirx.PrimFunc]:
    """Return `func` as the kernels into which partition puts its blocks where it may not have two anchors in one: each
    anchor with what is elementwise behind it, and rows by themselves. The order is that of execution.

    The parameters are the same buffers as in `func`, and what one part makes for another.
    """
    parts: list[KernelPart] = []
    for nest in _nests(func):
        block = _block_of(nest)
        part = _part_for(block, parts)
        part.nests.append(nest)
        part.blocks.append(block)
        part.made.extend(region.source for region in block.writes)
    return [_function(func, part, parts) for part in parts]


def weights_of(func: tirx.PrimFunc) -> list[Var]:
    """Return the parameters that are constant weights: second operands of anchors but for products of batches."""
    anchors = [block for block in blocks_of(func) if ANCHOR in block.annotations]
    second = [block.reads[1].source for block in anchors if str(block.annotations[ANCHOR]) != BATCH_MATMUL]
    return [buffer for buffer in second if buffer in func.params]


def only_moves(func: tirx.PrimFunc) -> bool:
    """Return whether `func` sums and compares nothing, such as a transpose before a product."""
    return all(block.init is None for block in blocks_of(func))


def blocks_of(func: tirx.PrimFunc) -> list[SBlock]:
    """Return the blocks of `func` in order of execution."""
    return [_block_of(nest) for nest in _nests(func)]


def _nests(func: tirx.PrimFunc) -> Sequence[tirx.Stmt]:
    body = func.body.block.body
    return list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]


def _block_of(nest: tirx.Stmt) -> SBlock:
    while not isinstance(nest, SBlockRealize):
        nest = nest.body
    return nest.block


def _part_for(block: SBlock, parts: list[KernelPart]) -> KernelPart:
    """Return the part of the last block that `block` reads; a new one for an anchor, and for rows behind one."""
    sources = {region.source for region in block.reads}
    producer = next((part for part in reversed(parts) if sources.intersection(part.made)), None)
    if producer is None or ANCHOR in block.annotations or (block.init is not None and producer.has_anchor):
        parts.append(KernelPart())
        return parts[-1]
    return producer


def _function(func: tirx.PrimFunc, part: KernelPart, parts: list[KernelPart]) -> tirx.PrimFunc:
    read_by_others = {buffer for other in parts if other is not part for buffer in other.reads()}
    results = [buffer for buffer in part.made if buffer in read_by_others or buffer in func.params]
    inner = [buffer for buffer in part.made if buffer not in results]
    body = part.nests[0] if len(part.nests) == 1 else tirx.SeqStmt(part.nests)
    root = SBlock([], [], [], "root", body, alloc_buffers=inner)
    realize = SBlockRealize([], tirx.const(True, "bool"), root)
    return tirx.PrimFunc([*part.reads(), *results], realize, func.ret_type, attrs=func.attrs)
