"""The loops of reductions that threads do alone."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.codegen.launches import join_launches
from backends.cuda.kernels.device_arithmetic import combined
from backends.cuda.kernels.launch import MOST_ELEMENTS, bound_loop
from backends.cuda.kernels.pointwise.emit import THREADS, compute_elements, emit_elements, widest_run
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.cuda.kernels.reductions.read import Reductions, read_reductions
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, Loaded, copy_lanes, register
from backends.tensorir.accesses import unravel
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import Resolver
from backends.tensorir.stages import Stage, dtype_of, shape_of
from fusion.declined import Declined

_UNROLLED = 4
"""Turns of an innermost loop that are written out."""


def emit_reductions(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` as one launch for each reduction, the last of which makes the outputs too, where these read only
    the element of the same place; otherwise one more launch for each shape of them makes them.

    ```
    for block, thread in T.grid(ceil(vectors / 256), 256):      # blockIdx.x, threadIdx.x
        vector = block * 256 + thread
        if vector < elements // 4:
            sums[0:4] = 0
            for y, x in T.grid(3, 3):
                a[0:4] = image[..., channel : channel + 4]
                for lane in T.unroll(4): sums[lane] = sums[lane] + a[lane] * w[y, x, channel + lane]
            output[vector * 4 : vector * 4 + 4] = epilogue(sums, ...)
    ```

    Raises:
        Declined: `read_reductions` cannot read it, or it is too large.
    """
    parts = read_reductions(func)
    earlier, last = parts.reductions[:-1], next(reversed(parts.reductions), None)
    between = [stage.buffer for stage in earlier]
    bodies = [_emit_reduction(parts, stage, None) for stage in earlier]
    try:
        bodies.append(_emit_last(parts, last))
    except Declined:
        if last is not None:
            bodies.append(_emit_reduction(parts, last, None))
            between.append(last.buffer)
        bodies += map(emit_elements, parts.regions)
    return join_launches(func, between, bodies) if len(bodies) > 1 else func.with_body(bodies[0])


def _emit_last(parts: Reductions, last: Stage | None) -> tirx.Stmt:
    if last is None or len(parts.regions) > 1:
        raise Declined("no reduction makes all outputs")
    return _emit_reduction(parts, last, parts.regions[0])


def _emit_reduction(parts: Reductions, stage: Stage, behind: ElementwiseRegion | None) -> tirx.Stmt:
    """Return the loops of one reduction, and of what is `behind` it; None for one that is kept as it is.

    Raises:
        Declined: What is behind is of another size, or reads other elements.
    """
    elements = prod(shape_of(stage.buffer))
    if elements > MOST_ELEMENTS:
        raise Declined("it has more elements than an int32 counts")
    if behind is not None and prod(shape_of(behind.outputs[0].buffer)) != elements:
        raise Declined("what is stored has another size than what is reduced")
    many = _lanes(parts, stage, behind)
    nest, vectors = Nest(), elements // many
    with (
        bound_loop(nest, "blockIdx.x", -(-vectors // THREADS)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        at = block * THREADS + thread
        with nest.when(at < vectors):
            vector = nest.bind("vector", at)
            lanes = Lanes(Var("lane", "int64"), many, ((vector, vectors),))
            reduced = register(nest, "reduced", many, dtype_of(stage.buffer))
            _reduce(nest, parts, stage, lanes=lanes, begin=vector * many, reduced=reduced)
            if behind is None:
                copy_lanes(nest, stage.buffer, vector * many, reduced, int64(0), many=many)
            else:
                compute_elements(nest, behind, vector * many, lanes, {stage.buffer: reduced})
    return nest.finish()


def _lanes(parts: Reductions, stage: Stage, behind: ElementwiseRegion | None) -> int:
    """Return how many neighbours a thread has: as many as one access brings, if they divide the innermost axis."""
    many = widest_run(behind, {each.buffer for each in parts.reductions}) if behind else ACCESS_BYTES // 4
    innermost = next((int(axis.extent) for axis in reversed(stage.spatial) if axis.extent != 1), 1)
    while innermost % many:
        many //= 2
    return many


def _reduce(nest: Nest, parts: Reductions, stage: Stage, *, lanes: Lanes, begin: Expr, reduced: Var) -> None:
    """Add the loops over what is reduced, which leave the results in registers."""
    with nest.run("lane", lanes.many, ForKind.UNROLLED) as lane:
        nest.add(store_flat(reduced, lane, stage.identity))
    variables = [Var(f"r{at}", "int64") for at, _ in enumerate(stage.reduce)]
    extents = [int(axis.extent) for axis in stage.reduce]
    ranged = Lanes(lanes.var, lanes.many, (*lanes.ranges, *zip(variables, extents, strict=True)))
    indices = unravel(begin + lanes.var, [axis.extent for axis in stage.spatial])
    place = dict(zip((axis.var for axis in stage.spatial), indices, strict=True))
    place |= dict(zip((axis.var for axis in stage.reduce), variables, strict=True))
    resolver = Resolver(parts.regions[0].stages, _load, ranged.analyzer())
    value = resolver.resolve(stage.value, place)
    with nest.apart() as turn:
        loaded = Loaded(nest, ranged)
        bindings = [tirx.Bind(var, loaded.take(bound)) for var, bound in resolver.bindings]
        value = loaded.take(value)
        so_far = tirx.BufferLoad(reduced, [lanes.var])
        body = [*bindings, store_flat(reduced, lanes.var, combined(stage, so_far, value))]
        nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, body)
    _add_loops(nest, list(zip(variables, extents, strict=True)), turn)


def _load(buffer: Var, indices: Sequence[Expr]) -> Expr:
    return tirx.BufferLoad(buffer, list(indices))


def _add_loops(nest: Nest, loops: Sequence[tuple[Var, int]], body: list[tirx.Stmt]) -> None:
    """Add loops around `body`, of which short innermost ones are written out."""
    for number, (var, extent) in enumerate(reversed(loops)):
        kind = ForKind.UNROLLED if number == 0 and extent <= _UNROLLED else ForKind.SERIAL
        with nest.apart() as around:
            nest.add_loop(var, int64(extent), kind, body)
        body = around
    nest.extend(body)
