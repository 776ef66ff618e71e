"""The loops of elementwise stages."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from types import MappingProxyType

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind
from tvm_ffi.structural import structural_equal

from backends.cuda.devices import STATIC_SHARED
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.pointwise.boxes import boxes_of
from backends.cuda.kernels.pointwise.bring import InShared, Pieces, bring, pieces_of
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, read_pointwise
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, Loaded, copy_lanes, register
from backends.cuda.kernels.runs import SECTOR_BYTES
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import dtype_of, item_bytes_of, loads, shape_of
from fusion.declined import Declined

THREADS = 256
"""Of a block: eight of them fill an SM of 2,048 threads."""
_SMALL = 8
"""How many times smaller than the outputs a tensor is that the L1 cache is taken to keep."""


def emit_pointwise(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with loops bound to blocks and threads, of one dimension each.

    ```
    for block, thread in T.grid(ceil(vectors / 256), 256):          # blockIdx.x, threadIdx.x
        vector = block * 256 + thread
        if vector < elements // 4:
            x[0:4] = a[vector * 4 : vector * 4 + 4]
            for lane in T.unroll(4): y[lane] = max(x[lane], 0.0)
            b[vector * 4 : vector * 4 + 4] = y[0:4]
        if elements // 4 <= vector < elements // 4 + elements % 4:  # the tail, an element a thread
            ...
    ```

    Where neighbours lie next to each other, but where no access begins, as in a slice of odd rows, a block brings what
    it reads first, and threads have single elements:

    ```
    for block, thread in T.grid(ceil(elements / 1024), 256):
        for turn in range(ceil(runs * vectors / 256)): bring_vector(shared, a, ...)
        barrier
        for turn in T.unroll(4):
            at = block * 1024 + turn * 256 + thread
            b[at] = max(shared[at // 49 * 80 + at % 49 + origins[...]], 0.0)
    ```

    Raises:
        Declined: `read_pointwise` cannot read it.
    """
    return func.with_body(emit_elements(read_pointwise(func)))


def emit_elements(parts: ElementwiseRegion) -> tirx.Stmt:
    """Return the loops over the elements of a region, as `emit_pointwise` shows them."""
    elements = prod(shape_of(parts.outputs[0].buffer))
    single = _read_singly(parts, elements)
    is_single = any(prod(shape_of(buffer)) * _SMALL >= elements for buffer in single)
    all_pieces = list(_brought(parts, single)) if is_single else []
    if all_pieces:
        return _emit_brought(parts, all_pieces)
    lanes = 1 if is_single else widest_run(parts)
    whole, rest = divmod(elements, lanes)
    nest, threads = Nest(), THREADS
    with (
        bound_loop(nest, "blockIdx.x", -(-(whole + rest) // threads)) as block,
        bound_loop(nest, "threadIdx.x", threads) as thread,
    ):
        at = block * threads + thread
        if whole:
            with nest.when(at < whole):
                _compute(nest, parts, at, Lanes(Var("lane", "int64"), lanes), whole)
        if rest:
            with nest.when(tirx.And(at >= whole, at < whole + rest)):
                position = at + (whole * lanes - whole)
                _compute(nest, parts, position, Lanes(Var("lane", "int64"), 1), elements)
    return nest.finish()


@dataclass(frozen=True)
class _Position:
    """One element of the outputs, of a thread's neighbours.

    Attributes:
        place: What the axes are there.
        indices: The same, simplified, of each axis.
        flat: Where it is in memory.
    """

    parts: ElementwiseRegion
    place: Mapping[Var, Expr]
    indices: tuple[Expr, ...]
    flat: Expr

    @classmethod
    def of(cls, parts: ElementwiseRegion, begin: Expr, lanes: Lanes) -> _Position:
        counted = unravel(begin + lanes.var, [parts.axes[place].extent for place in parts.order])
        indices = [index for _, index in sorted(zip(parts.order, counted, strict=True), key=lambda each: each[0])]
        place = dict(zip((axis.var for axis in parts.axes), indices, strict=True))
        analyzer = lanes.analyzer()
        return cls(parts, place, tuple(analyzer.simplify(index) for index in indices), begin + lanes.var)

    def is_written(self, buffer: Var, index: Sequence[Expr]) -> bool:
        """Return whether an element is read where the outputs, in the order in which they lie, are written."""
        is_alike = shape_of(buffer) == shape_of(self.parts.outputs[0].buffer)
        return is_alike and not self.parts.is_permuted and all(map(structural_equal, index, self.indices))

    def load(self, buffer: Var, index: Sequence[Expr]) -> Expr:
        """Return a load; one at one position, which shows that neighbours adjoin, where the outputs are written."""
        return load_flat(buffer, self.flat) if self.is_written(buffer, index) else tirx.BufferLoad(buffer, list(index))


def _read_singly(parts: ElementwiseRegion, elements: int) -> set[Var]:
    """Return the tensors that threads with as many neighbours as one access brings would read element by element; where
    there are any but small ones, lanes do so side by side."""
    many = widest_run(parts)
    if many == 1 or elements < many:
        return set()
    vector = Var("vector", "int64")
    lanes = Lanes(Var("lane", "int64"), many, ((vector, elements // many),))
    nest, at = Nest(), _Position.of(parts, vector * many, lanes)
    resolver = Resolver(parts.stages, at.load, lanes.analyzer())
    values = [resolver.resolve(stage.value, dict(at.place)) for stage in parts.outputs]
    loaded = Loaded(nest, lanes)
    bound = [binding.value for binding in loaded.bind(resolver.bindings)]
    left = [*bound, *map(loaded.take, values)]
    return {load.source for value in left for load in loads(value) if str(load.source.scope()) != "local"}


def _brought(parts: ElementwiseRegion, single: Collection[Var]) -> Iterator[Pieces]:
    """Yield what a block brings of the tensors that are read element by element: of those whose rows do not begin with
    sectors, as far as its shared memory holds them."""
    boxes = {} if parts.is_permuted else boxes_of(parts)
    left = STATIC_SHARED
    for buffer in (buffer for buffer in boxes if buffer in single):
        try:
            pieces = pieces_of(buffer, boxes[buffer], THREADS * widest_run(parts))
        except Declined:
            continue
        if pieces.shared_bytes <= left and not pieces.box.is_aligned(SECTOR_BYTES // pieces.item_bytes):
            left -= pieces.shared_bytes
            yield pieces


def _emit_brought(parts: ElementwiseRegion, all_pieces: list[Pieces]) -> tirx.Stmt:
    """Return the loops of a region of which a block brings tensors."""
    elements, nest, of_block = prod(shape_of(parts.outputs[0].buffer)), Nest(), all_pieces[0].of_block
    with (
        bound_loop(nest, "blockIdx.x", -(-elements // of_block)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        brought = bring(nest, all_pieces, block * of_block, thread, THREADS)
        with nest.run("turn", of_block // THREADS, ForKind.UNROLLED) as turn:
            at = nest.bind("at", block * of_block + turn * THREADS + thread)
            with guard(nest, at < elements if elements % of_block else None):
                lanes = Lanes(Var("lane", "int64"), 1, ((at, elements),))
                compute_elements(nest, parts, at, lanes, {}, brought=brought)
    return nest.finish()


def _compute(nest: Nest, parts: ElementwiseRegion, at: Expr, lanes: Lanes, extent: int) -> None:
    """Add what one thread does for the elements from `at * lanes.many` on, where `at` is below `extent`."""
    vector = nest.bind("vector", at)
    compute_elements(nest, parts, vector * lanes.many, Lanes(lanes.var, lanes.many, ((vector, extent),)), {})


def compute_elements(
    nest: Nest, parts: ElementwiseRegion, begin: Expr, lanes: Lanes, made: Mapping[Var, Var],
    brought: Mapping[Var, InShared] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Add what one thread does for the elements of the outputs from the position `begin` on, in their order.

    Args:
        made: Registers with the same elements of what the kernel has computed, by the buffers that the stages read;
            where the region is permuted, it is so that they are read at these positions.
        brought: What of memory is in the block's shared memory; a thread has one element then.

    Raises:
        Declined: Other elements of these are read.
    """
    analyzer, position = lanes.analyzer(), _Position.of(parts, begin, lanes)

    def load(buffer: Var, index: Sequence[Expr]) -> Expr:
        if buffer in brought:
            return brought[buffer].element(flat_index(shape_of(buffer), index, analyzer), begin)
        if buffer not in made:
            return position.load(buffer, index)
        at = flat_index(shape_of(buffer), index, analyzer)
        is_known = parts.is_permuted or parts.is_in_order or position.is_written(buffer, index)
        if not (is_known or analyzer.can_prove_equal(at, begin + lanes.var)):
            raise Declined(f"{buffer.name} is read at another position")
        return tirx.BufferLoad(made[buffer], [lanes.var])

    resolver = Resolver(parts.stages, load, analyzer)
    values = [resolver.resolve(stage.value, dict(position.place)) for stage in parts.outputs]
    loaded = Loaded(nest, lanes)
    bindings = loaded.bind(resolver.bindings)
    results = [register(nest, f"{stage.buffer.name}_", lanes.many, dtype_of(stage.buffer)) for stage in parts.outputs]
    values = [loaded.take(value) for value in values]
    with nest.apart() as body:
        nest.extend(bindings)
        nest.extend(store_flat(to, lanes.var, value) for to, value in zip(results, values, strict=True))
    nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, body)
    for result, stage in zip(results, parts.outputs, strict=True):
        first = lanes.begin(tirx.BufferLoad(stage.buffer, list(position.indices))) if parts.is_permuted else begin
        if first is not None:
            copy_lanes(nest, stage.buffer, first, result, int64(0), many=lanes.many)
            continue
        stored = tirx.BufferStore(stage.buffer, tirx.BufferLoad(result, [lanes.var]), list(position.indices))
        nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, [stored])


def widest_run(parts: ElementwiseRegion, given: Collection[Var] = ()) -> int:
    """Return how many elements one access brings of the buffer with the widest, of those that neighbours read or write
    beside each other; `given` are not in memory."""
    buffers = {stage.buffer for stage in parts.outputs} | (parts.read_beside() - {*parts.stages, *given})
    return max(1, ACCESS_BYTES // max(map(item_bytes_of, buffers)))
