"""Classifies a PrimFunc by how it accesses its operands, read from its loops and buffer accesses, not from its name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, Range, TensorLoad, Var
from tvm.s_tir.stmt import SBlock
from tvm.sym import Analyzer
from tvm_ffi.structural import structural_equal

from fusion.shapes import static_shape
from fusion.structural import contains, find, map_nodes

ANCHOR = "fusion.anchor"
"""Block annotation of an anchor, also called a complex operator: a reduction that reuses data, such as a matmul or a
convolution. Its value is the kind of anchor."""

TURN = "fusion.turn"
"""Attribute of a PrimFunc that swaps the two parts of each row of its operand, as rotary embeddings do; its value is
the length of the part that comes first in the result."""

MATMUL, BATCH_MATMUL, DEPTHWISE = "matmul", "batch_matmul", "depthwise_conv2d"
CONV2D, IMAGE_CONV2D = "conv2d", "image_conv2d"
"""Kinds of anchors that may share a kernel with others: matmuls with packed weights, batched matmuls of two
activations, depthwise convolutions, and convolutions of channels-last images. The image, or the left operand, is the
first argument of the call."""

MATMUL_NBITS = "matmul_nbits"
"""Kind of anchor that is rows times a constant matrix of 4 bits, as `frontends/narrow_weights.py` writes it."""

NBITS_DIGITS = "fusion.nbits_digits"
"""Block annotation of such an anchor: in how many bytes a number of a row may be rounded; its value is 1 or 3."""

NBITS_MIDDLE = 8
"""The zero point of such weights that are given none."""

IMAGE_PRODUCERS = (MATMUL, CONV2D, IMAGE_CONV2D)
"""Kinds of anchors that can compute an image row by row, just ahead of a window that reads it in the same kernel."""

POOL = "fusion.pool"
"""Block annotation of a max pooling of an NHWC image, which may share the kernel that computes the image. Its value is
`Window.annotation`."""

_REDUCE_ITER = 2  # tirx.IterVar.CommReduce


class MappingKind(Enum):
    """Mapping types after DNNFusion (PLDI'21, table 2), with reductions divided by which axes they reduce."""

    ANCHOR = "complex operator"
    ELEMENTWISE = "elementwise or broadcast"
    REORDER = "reshape or transpose"
    GATHER = "indexed read"
    ROWS = "reduction over trailing axes"
    REDUCTION = "reduction over other axes"
    OPAQUE = "not analysed"


@dataclass(frozen=True)
class AccessSummary:
    """How one PrimFunc accesses its operands.

    Attributes:
        kind: Its mapping type.
        shape: The shape of its output.
        rows: For `ROWS`, the extents of the axes that are not reduced, without those of 1.
        keeps_last: For `REORDER`, whether the innermost axis stays contiguous in memory.
        moves: For `REORDER`, whether any element changes its place in memory (a reshape moves none).
        anchor: For `ANCHOR`, the kind of anchor.
        pools: Whether it is a max pooling, marked by `POOL`.
        reads: For `ELEMENTWISE`, how often its expression has an element of an operand, those of a choice twice: its
            condition is known to both of its sides.
    """

    kind: MappingKind
    shape: tuple[int, ...] = ()
    rows: tuple[int, ...] = ()
    keeps_last: bool = True
    moves: bool = False
    anchor: str = ""
    pools: bool = False
    reads: int = 1

    @property
    def elements(self) -> int:
        return prod(self.shape)


def read_access(func: tirx.PrimFunc) -> AccessSummary:
    """Return the summary of `func`: `OPAQUE` unless it consists of blocks with static extents and has one output."""
    if not is_static(func):
        return AccessSummary(MappingKind.OPAQUE)
    blocks = computed_blocks(func)
    written = {block.writes[0].source for block in blocks if len(block.writes) == 1}
    outputs = [param for param in func.params if param in written]
    if not blocks or len(outputs) != 1 or any(len(block.writes) != 1 for block in blocks):
        return AccessSummary(MappingKind.OPAQUE)
    shape = static_shape(outputs[0])
    for block in blocks:
        if ANCHOR in block.annotations:
            return AccessSummary(MappingKind.ANCHOR, shape, anchor=str(block.annotations[ANCHOR]))
    if any(_reduced(block) for block in blocks):
        return _reduction(blocks, shape)
    return _injective(func, blocks, shape)


def computed_blocks(func: tirx.PrimFunc) -> list[SBlock]:
    """Return the blocks of a kernel that have axes: all but the root block."""
    return [block for block in find(func.body, SBlock) if block.iter_vars]


def find_anchors(func: tirx.PrimFunc) -> list[SBlock]:
    """Return the blocks that carry an anchor annotation."""
    return [block for block in find(func.body, SBlock) if ANCHOR in block.annotations]


def is_static(func: tirx.PrimFunc) -> bool:
    """Return whether the extents of all parameters and axes are numbers."""
    # Slices are lists: an iterator over an array of TVM's takes twice as long.
    extents = [extent for param in func.params if hasattr(param.ty, "shape") for extent in param.ty.shape[:]]
    extents += [axis.dom.extent for block in computed_blocks(func) for axis in block.iter_vars[:]]
    return all(isinstance(extent, tirx.IntImm) for extent in extents)


def _reduced(block: SBlock) -> list[Var]:
    return [axis.var for axis in block.iter_vars if int(axis.iter_type) == _REDUCE_ITER]


def _reduction(blocks: Sequence[SBlock], shape: tuple[int, ...]) -> AccessSummary:
    """Return the summary of a kernel with reductions: `ROWS` if all of them reduce the whole of the trailing axes of
    what they read, and keep the same leading axes; `REDUCTION` otherwise."""
    rows: set[tuple[int, ...]] = set()
    for block in blocks:
        reduced = _reduced(block)
        if not reduced:
            continue
        if POOL in block.annotations:
            return AccessSummary(MappingKind.REDUCTION, shape, pools=True)
        load = _widest_load(block)
        if load is None or not _reduces_trailing(load, reduced):
            return AccessSummary(MappingKind.REDUCTION, shape)
        rows.add(dense(static_shape(load.source)[: len(load.indices) - len(reduced)]))
    kept = next(iter(rows))
    if len(rows) > 1 or dense(shape)[: len(kept)] != kept:
        return AccessSummary(MappingKind.REDUCTION, shape)
    return AccessSummary(MappingKind.ROWS, shape, kept)


def _widest_load(block: SBlock) -> TensorLoad | None:
    inputs = [load for load in find(block.body, TensorLoad) if not load.source.same_as(block.writes[0].source)]
    return max(inputs, key=lambda load: len(load.indices), default=None)


def _reduces_trailing(load: TensorLoad, reduced: Sequence[Var]) -> bool:
    trailing = list(load.indices)[len(load.indices) - len(reduced) :]
    return all(any(index.same_as(var) for var in reduced) for index in trailing)


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the extents that are not 1."""
    return tuple(extent for extent in shape if extent != 1)


def _injective(func: tirx.PrimFunc, blocks: Sequence[SBlock], shape: tuple[int, ...]) -> AccessSummary:
    params = set(func.params)
    reads = [load for block in blocks for load in find(block.body, TensorLoad) if load.source in params]
    if any(_loads_inside(load) for load in reads) or (func.attrs is not None and TURN in func.attrs):
        return AccessSummary(MappingKind.GATHER, shape)
    if len(blocks) != 1:
        return AccessSummary(MappingKind.OPAQUE, shape)
    axes = [axis.var for axis in blocks[0].iter_vars]
    extents = [int(axis.dom.extent) for axis in blocks[0].iter_vars]
    if all(_is_broadcast(load, axes) for load in reads) and not _conditional(blocks[0]):
        most = max(Counter(load.source for load in reads).values(), default=1)
        chooses = contains(blocks[0].body, (tirx.Select, lambda choice: True))
        return AccessSummary(MappingKind.ELEMENTWISE, shape, reads=most * (1 + chooses))
    if len(reads) == 1 and prod(static_shape(reads[0].source)) == prod(shape) and not _conditional(blocks[0]):
        return AccessSummary(MappingKind.REORDER, shape, (), *_movement(reads[0], axes, extents))
    return AccessSummary(MappingKind.OPAQUE, shape)


def _loads_inside(load: TensorLoad) -> bool:
    return any(find(index, TensorLoad) for index in load.indices)


def _conditional(block: SBlock) -> bool:
    """Return whether reads depend on a condition, as in a padding or a concatenation."""
    return contains(block.body, (Call, lambda call: "if_then_else" in str(call.op)))


def _is_broadcast(load: TensorLoad, axes: Sequence[Var]) -> bool:
    """Return whether the load is indexed by the trailing axes of the block, in order, or by 0 where its extent is 1."""
    own = axes[len(axes) - len(load.indices) :] if load.indices else []
    if len(load.indices) > len(axes):
        return False
    return all(
        index.same_as(axis) or (is_zero(index) and int(extent) == 1)
        for index, axis, extent in zip(load.indices, own, load.source.ty.shape, strict=True)
    )


def is_zero(index: Any) -> bool:
    """Return whether an index is the constant 0."""
    return isinstance(index, tirx.IntImm) and int(index.value) == 0


def _movement(load: TensorLoad, axes: Sequence[Var], extents: Sequence[int]) -> tuple[bool, bool]:
    """Return (`keeps_last`, `moves`) of an index map that reads each element of its input once."""
    analyzer = Analyzer()
    for axis, extent in zip(axes, extents, strict=True):
        analyzer.bind(axis, Range(0, extent))
    source = analyzer.simplify(_flat(list(load.indices), static_shape(load.source)))
    target = analyzer.simplify(_flat(list(axes), tuple(extents)))
    if structural_equal(source, target):
        return True, False
    last = next((axis for axis, extent in zip(reversed(axes), reversed(extents), strict=True) if extent != 1), None)
    if last is None:
        return True, False
    step = analyzer.simplify(_step(source, last) - source)
    return isinstance(step, tirx.IntImm) and int(step.value) == 1, True


def _flat(indices: Sequence[Any], shape: tuple[int, ...]) -> Any:
    offset: Any = tirx.const(0, "int64")
    for index, extent in zip(indices, shape, strict=True):
        offset = offset * extent + index
    return offset


def _step(expr: Any, axis: Var) -> Any:
    return map_nodes(expr, (Var, lambda var: var + 1 if var.same_as(axis) else var))
