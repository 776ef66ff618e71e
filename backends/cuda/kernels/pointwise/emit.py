"""The loops of elementwise stages."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from math import prod

import tvm_ffi
from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind
from tvm_ffi.structural import structural_equal

from backends.cuda.kernels.launch import MOST_ELEMENTS, bound_loop
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, read_pointwise
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, Loaded, copy_lanes, register
from backends.tensorir.accesses import flat_index, unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import load_flat, store_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import dtype_of, loads, shape_of
from fusion.declined import Declined

THREADS = 256
"""Of a block: eight of them fill an SM of 2,048 threads."""


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

    Raises:
        Declined: `read_pointwise` cannot read it, or it is too large.
    """
    return func.with_body(emit_elements(read_pointwise(func)))


def emit_elements(parts: ElementwiseRegion) -> tirx.Stmt:
    """Return the loops over the elements of a region, as `emit_pointwise` shows them.

    Raises:
        Declined: It is too large.
    """
    elements = prod(shape_of(parts.outputs[0].buffer))
    if elements > MOST_ELEMENTS:
        raise Declined("it has more elements than an int32 counts")
    lanes = widest_run(parts)
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


def _compute(nest: Nest, parts: ElementwiseRegion, at: Expr, lanes: Lanes, extent: int) -> None:
    """Add what one thread does for the elements from `at * lanes.many` on, where `at` is below `extent`."""
    vector = nest.bind("vector", at)
    compute_elements(nest, parts, vector * lanes.many, Lanes(lanes.var, lanes.many, ((vector, extent),)), {})


def compute_elements(nest: Nest, parts: ElementwiseRegion, begin: Expr, lanes: Lanes, made: Mapping[Var, Var]) -> None:
    """Add what one thread does for the elements of the outputs from the position `begin` on, in their order.

    Args:
        made: Registers with the same elements of what the kernel has computed, by the buffers that the stages read;
            where the region is turned, it is so that they are read at these positions.

    Raises:
        Declined: Other elements of these are read.
    """
    counted = unravel(begin + lanes.var, [parts.axes[place].extent for place in parts.order])
    indices = [index for _, index in sorted(zip(parts.order, counted, strict=True), key=lambda each: each[0])]
    place = dict(zip((axis.var for axis in parts.axes), indices, strict=True))
    analyzer = lanes.analyzer()
    whole = [analyzer.simplify(index) for index in indices]

    def load(buffer: Var, index: Sequence[Expr]) -> Expr:
        """What is read where the outputs are written is read at one position, which shows that neighbours adjoin."""
        is_alike = shape_of(buffer) == shape_of(parts.outputs[0].buffer) and all(map(structural_equal, index, whole))
        is_whole = is_alike and not parts.is_turned
        if buffer not in made:
            return load_flat(buffer, begin + lanes.var) if is_whole else tirx.BufferLoad(buffer, list(index))
        at = flat_index(shape_of(buffer), index, analyzer)
        if not (is_whole or parts.is_turned or analyzer.can_prove_equal(at, begin + lanes.var)):
            raise Declined(f"{buffer.name} is read at another position")
        return tirx.BufferLoad(made[buffer], [lanes.var])

    resolver = Resolver(parts.stages, load, analyzer)
    values = [resolver.resolve(stage.value, place) for stage in parts.outputs]
    loaded = Loaded(nest, lanes)
    bindings = [(var, loaded.take(bound)) for var, bound in resolver.bindings]
    results = [register(nest, f"{stage.buffer.name}_", lanes.many, dtype_of(stage.buffer)) for stage in parts.outputs]
    values = [loaded.take(value) for value in values]
    with nest.apart() as body:
        nest.extend(tirx.Bind(var, bound) for var, bound in bindings)
        nest.extend(store_flat(to, lanes.var, value) for to, value in zip(results, values, strict=True))
    nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, body)
    for result, stage in zip(results, parts.outputs, strict=True):
        first = lanes.begin(tirx.BufferLoad(stage.buffer, whole)) if parts.is_turned else begin
        if first is not None:
            copy_lanes(nest, stage.buffer, first, result, int64(0), many=lanes.many)
            continue
        stored = tirx.BufferStore(stage.buffer, tirx.BufferLoad(result, [lanes.var]), whole)
        nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, [stored])


def widest_run(parts: ElementwiseRegion, given: Collection[Var] = ()) -> int:
    """Return how many elements one access brings of the buffer with the widest; `given` are not in memory."""
    made = set(parts.stages).union(given) - {stage.buffer for stage in parts.outputs}
    read = {load.source for stage in parts.stages.values() for load in loads(stage.value)} - made
    buffers = read | {stage.buffer for stage in parts.outputs}
    return max(1, ACCESS_BYTES // max(int(tvm_ffi.dtype(dtype_of(buffer)).itemsize) for buffer in buffers))
