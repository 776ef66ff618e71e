"""The loops of reductions that threads do alone."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import prod
from types import MappingProxyType

from tvm import tirx
from tvm.ir import Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cuda.codegen.launches import join_launches
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.device_arithmetic import combined
from backends.cuda.kernels.launch import bound_loop, check_sizes
from backends.cuda.kernels.pointwise.bring import InShared
from backends.cuda.kernels.pointwise.emit import THREADS, compute_elements, emit_elements, widest_run
from backends.cuda.kernels.pointwise.read import ElementwiseRegion
from backends.cuda.kernels.reductions.brought import (
    BroughtRun,
    ReductionRuns,
    allocate,
    bring_turn,
    bring_whole,
    runs_of,
)
from backends.cuda.kernels.reductions.groups.emit import emit_groups
from backends.cuda.kernels.reductions.groups.read import grouped_sum
from backends.cuda.kernels.reductions.groups.tile import GroupTile, choose_tile
from backends.cuda.kernels.reductions.read import Reductions, read_reductions
from backends.cuda.kernels.reductions.split import split
from backends.cuda.kernels.registers import ACCESS_BYTES, Lanes, Loaded, copy_lanes, register
from backends.cuda.kernels.rows.emit import emit_region
from backends.cuda.kernels.rows.read import RowRegion, region_of_rows
from backends.tensorir.accesses import flat_index, range_of, unravel
from backends.tensorir.emit import Expr, Nest, guard, int64
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import Resolver, guards
from backends.tensorir.stages import Stage, dtype_of, item_bytes_of, loads, shape_of, substitute
from fusion.declined import Declined

_UNROLLED = 4
"""Turns of an innermost loop that are written out."""
_SHORTEST_ROW = 32
"""Elements that lie next to each other in memory, and are reduced by lanes of a warp or a block."""


def emit_reductions(func: tirx.PrimFunc, device: CudaDevice) -> tirx.PrimFunc:
    """Return `func` as one launch for each reduction, the last of which makes the outputs too, where these read only
    the element of the same place; otherwise one more launch for each shape of them makes them.

    Where outputs of one shape alone are made of what is reduced, as rows, each shape is a launch: a softmax with the
    mask that it adds, or a layer norm with one of its rows.

    A long reduction of few results is two launches (`split.py`). Where neighbours of what is reduced lie next to each
    other, the loops are those of rows, each of which leaves a number; otherwise a thread has neighbouring results:

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
    try:
        return join_launches(func, [], list(_emit_shapes(parts, device)))
    except Declined:
        pass
    stages = [step for stage in parts.reductions for step in _steps(parts, stage, device)]
    bodies = [_emit_reduction(parts, stage, device, None) for stage in stages[:-1]]
    workspaces = [stage.buffer for stage in stages[:-1]]
    last = next(reversed(stages), None)
    try:
        bodies.append(_emit_last(parts, last, device))
    except Declined:
        if last is not None:
            bodies.append(_emit_reduction(parts, last, device, None))
            workspaces.append(last.buffer)
        bodies += map(emit_elements, parts.regions)
    return join_launches(func, workspaces, bodies) if len(bodies) > 1 else func.with_body(bodies[0])


def _emit_shapes(parts: Reductions, device: CudaDevice) -> Iterator[tirx.Stmt]:
    """Yield the loops of the outputs of each shape, which read what those before them stored: of one shape with all
    reductions, as rows.

    Raises:
        Declined: There is one shape, several are made of what is reduced, or they are none of rows.
    """
    reduced = {stage.buffer for stage in parts.reductions}
    stored, of_rows = set[Var](), 0
    for region in parts.regions:
        own = replace(region, stages=_without(region.stages, stored))
        stored |= {stage.buffer for stage in own.outputs}
        if not reduced & _read_by(own):
            yield emit_elements(own)
            continue
        of_rows += 1
        stages = [_alone(replace(parts, regions=(own,)), stage) for stage in (*parts.reductions, *own.outputs)]
        yield emit_region(region_of_rows(stages, {stage.buffer for stage in own.outputs}), device)
    if of_rows != 1 or len(parts.regions) == 1:
        raise Declined("outputs of several shapes are made of what is reduced, or there is one shape")


def _without(stages: Mapping[Var, Stage], buffers: Collection[Var]) -> dict[Var, Stage]:
    return {buffer: stage for buffer, stage in stages.items() if buffer not in buffers}


def _read_by(region: ElementwiseRegion) -> set[Var]:
    """Return all that the outputs of a region are made of."""
    found, waiting = set[Var](), list(region.outputs)
    while waiting:
        read = {load.source for load in loads(waiting.pop().value)} - found
        found |= read
        waiting += [region.stages[buffer] for buffer in read if buffer in region.stages]
    return found


def _steps(parts: Reductions, stage: Stage, device: CudaDevice) -> tuple[Stage, ...]:
    """Return a reduction as one stage, or as two."""
    if _tile_of_groups(parts, stage, None, device) is not None:
        return (stage,)
    found = split(_alone(parts, stage), device, in_rows=_rows_of(parts, stage) is not None)
    return (stage,) if found is None else (found.parts, found.total)


def _rows_of(parts: Reductions, stage: Stage, behind: ElementwiseRegion | None = None) -> RowRegion | None:
    """Return a reduction, and what is behind it, as one of rows that lie in memory; None where they are none."""
    stages = [stage] if behind is None else [stage, *behind.outputs]
    outputs = {stage.buffer} if behind is None else {each.buffer for each in behind.outputs}
    try:
        region = region_of_rows([_alone(parts, each) for each in stages], outputs)
    except Declined:
        return None
    return region if region.width >= _SHORTEST_ROW else None


def _alone(parts: Reductions, stage: Stage) -> Stage:
    """Return a stage with all that is elementwise before it inside."""
    analyzer = Analyzer()
    for axis in (*stage.spatial, *stage.reduce):
        analyzer.bind(axis.var, range_of(axis))
    resolver = Resolver(parts.regions[0].stages, _load, analyzer)
    value = resolver.resolve(stage.value, {})
    for var, bound in reversed(resolver.bindings):
        value = substitute(value, {var: bound})
    return replace(stage, value=value)


def _emit_last(parts: Reductions, last: Stage | None, device: CudaDevice) -> tirx.Stmt:
    if last is None or len(parts.regions) > 1:
        raise Declined("no reduction makes all outputs")
    return _emit_reduction(parts, last, device, parts.regions[0])


def _emit_reduction(
    parts: Reductions, stage: Stage, device: CudaDevice, behind: ElementwiseRegion | None
) -> tirx.Stmt:
    """Return the loops of one reduction, and of what is `behind` it; None for one that is kept as it is.

    Raises:
        Declined: What is behind is of another size, or reads other elements.
    """
    elements = prod(shape_of(stage.buffer))
    check_sizes(stage.buffer)
    if behind is not None and prod(shape_of(behind.outputs[0].buffer)) != elements:
        raise Declined("what is stored has another size than what is reduced")
    rows = _rows_of(parts, stage, behind)
    if rows is not None:
        return emit_region(rows, device)
    stored = [stage.buffer] if behind is None else [each.buffer for each in behind.outputs]
    tile = _tile_of_groups(parts, stage, behind, device)
    if tile is not None:
        return emit_groups(tile, partial(_store, stage, behind))
    many, stored_bytes = _lanes(parts, stage, behind), min(map(item_bytes_of, stored))
    runs = runs_of(_alone(parts, stage), _given_to(behind, stage), stored_bytes=stored_bytes, many=many)
    if runs is None:
        return _emit_alone(parts, stage, behind, many=many)
    return _emit_brought(parts, stage, behind, runs=runs)


def _tile_of_groups(
    parts: Reductions, stage: Stage, behind: ElementwiseRegion | None, device: CudaDevice
) -> GroupTile | None:
    """Return the results of a block, of a convolution in groups; None of other reductions."""
    found = grouped_sum(_alone(parts, stage))
    if found is None:
        return None
    stored = item_bytes_of(stage.buffer if behind is None else behind.outputs[0].buffer)
    widest = ACCESS_BYTES // max(found.item_bytes, item_bytes_of(found.weights), stored)
    if behind is not None:
        widest = min(widest, widest_run(behind, {stage.buffer}))
    return choose_tile(found, widest, stored, device)


def _store(
    stage: Stage, behind: ElementwiseRegion | None, nest: Nest, begin: Expr, lanes: Lanes, reduced: Var,
    held: Mapping[Var, InShared] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Add what stores results in registers, whose positions begin at `begin`; `held` is in shared memory."""
    if behind is None:
        copy_lanes(nest, stage.buffer, begin, reduced, int64(0), many=lanes.many)
    else:
        compute_elements(nest, behind, begin, lanes, {stage.buffer: reduced}, brought=held)


def _emit_brought(
    parts: Reductions, stage: Stage, behind: ElementwiseRegion | None, *, runs: ReductionRuns
) -> tirx.Stmt:
    """Return the loops of a reduction of which a block brings what it reads; a thread has one result.

    ```
    for block, thread in T.grid(ceil(results / 256), 256):
        at = block * 256 + thread                                       # from where a sector of the output begins
        sum = 0
        for y in range(3):                                              # the outer reduced axes
            barrier; start_run(shared, image, ...); wait; barrier       # what all results of the block read there
            if at < results:
                for x in range(3): sum = sum + shared[...]
        if at < results: output[at] = epilogue(sum, ...)
    ```
    """
    results, nest = prod(shape_of(stage.buffer)), Nest()
    with (
        bound_loop(nest, "blockIdx.x", -(-results // runs.of_block)) as block,
        bound_loop(nest, "threadIdx.x", runs.threads) as thread,
    ):
        begin, shared = nest.bind("begin", block * runs.of_block), allocate(nest, runs)
        held = bring_whole(nest, runs, thread)
        at = nest.bind("at", begin - tirx.floormod(begin, int64(runs.aligned)) + thread)
        reduced = register(nest, "reduced", 1, dtype_of(stage.buffer))
        nest.store(reduced, [int64(0)], stage.identity)
        ends = (begin, tirx.min(begin + runs.of_block, int64(results)) - 1)
        is_whole = runs.threads == runs.of_block and results % runs.of_block == 0
        is_one = None if is_whole else tirx.And(at >= ends[0], at <= ends[1])
        lanes = Lanes(Var("lane", "int64"), 1, ((at, results),))
        with _each_turn(nest, runs) as outer:
            brought = bring_turn(nest, runs, shared, results=ends, reduced=outer, thread=thread)
            with guard(nest, is_one):
                turn = _Turn(runs, outer, {**held, **brought})
                _reduce_turn(nest, parts, stage, lanes=lanes, at=at, reduced=reduced, turn=turn)
        with guard(nest, is_one):
            _store(stage, behind, nest, at, lanes=lanes, reduced=reduced, held=held)
    return nest.finish()


def _given_to(behind: ElementwiseRegion | None, stage: Stage) -> list[Var]:
    """Return what of memory a region reads that is `behind` a reduction, once each."""
    if behind is None:
        return []
    read, made = _read_by(behind), {stage.buffer, *behind.stages}
    every = dict.fromkeys(load.source for each in behind.stages.values() for load in loads(each.value))
    return [buffer for buffer in every if buffer in read and buffer not in made]


@contextmanager
def _each_turn(nest: Nest, runs: ReductionRuns) -> Iterator[tuple[Expr, ...]]:
    """Open the loops over the runs of a block: the outer reduced indices, and the first of a run."""
    with ExitStack() as loops:
        outer = [loops.enter_context(nest.run(f"r{at}", runs.reduced[at])) for at in range(runs.outer)]
        turn = loops.enter_context(nest.run("turn", runs.turns))
        yield (*outer, nest.bind("first", turn * runs.turn))


@dataclass(frozen=True)
class _Turn:
    """What is in shared memory at these outer reduced indices, the last of which is the first of each tensor's run."""

    runs: ReductionRuns
    outer: tuple[Expr, ...]
    brought: Mapping[Var, BroughtRun]


def _reduce_turn(
    nest: Nest, parts: Reductions, stage: Stage, *, lanes: Lanes, at: Var, reduced: Var, turn: _Turn
) -> None:
    """Add the loops over what is reduced of a run."""
    runs, outer, brought, own = turn.runs, turn.outer, turn.brought, Var("own", "int64")
    inner = [Var(f"r{place}", "int64") for place in range(runs.outer + 1, len(runs.reduced))]
    extents = [runs.turn, *runs.reduced[runs.outer + 1 :]]
    variables = [own, *inner]
    known = [(var, runs.reduced[place]) for place, var in enumerate(outer[:-1]) if isinstance(var, Var)]
    ranged = Lanes(lanes.var, 1, (*lanes.ranges, *known, *zip(variables, extents, strict=True)))
    analyzer = ranged.analyzer()
    indices = (*outer[:-1], outer[-1] + own, *inner)

    def load(buffer: Var, index: Sequence[Expr]) -> Expr:
        if buffer in brought:
            return brought[buffer].element(flat_index(shape_of(buffer), index, analyzer), at)
        return tirx.BufferLoad(buffer, list(index))

    place = dict(zip((axis.var for axis in stage.spatial), unravel(at, runs.results), strict=True))
    place |= dict(zip((axis.var for axis in stage.reduce), indices, strict=True))
    resolver = Resolver(parts.regions[0].stages, load, analyzer)
    value = resolver.resolve(stage.value, place)
    with nest.apart() as computed:
        nest.extend(tirx.Bind(var, bound) for var, bound in resolver.bindings)
        so_far = tirx.BufferLoad(reduced, [int64(0)])
        nest.store(reduced, [int64(0)], combined(stage, so_far, value))
    is_there = None
    if runs.reduced[runs.outer] % runs.turn:
        is_there = outer[-1] + own < runs.reduced[runs.outer]
    with nest.apart() as loops:
        _add_loops(nest, list(zip(inner, extents[1:], strict=True)), computed)
    with nest.apart() as body, guard(nest, is_there):
        nest.extend(loops)
    _add_loops(nest, [(own, runs.turn)], body)


def _emit_alone(parts: Reductions, stage: Stage, behind: ElementwiseRegion | None, *, many: int) -> tirx.Stmt:
    """Return the loops of a reduction whose threads have so many neighbouring results."""
    nest, vectors = Nest(), prod(shape_of(stage.buffer)) // many
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
            _store(stage, behind, nest, vector * many, lanes=lanes, reduced=reduced)
    return nest.finish()


def _lanes(parts: Reductions, stage: Stage, behind: ElementwiseRegion | None) -> int:
    """Return how many neighbours a thread has: as many as one access brings, if they divide the innermost axis, or the
    results where nothing is read in branches, which lanes may take apart."""
    read = max(item_bytes_of(load.source) for load in loads(_alone(parts, stage).value))
    many = ACCESS_BYTES // max(read, item_bytes_of(stage.buffer))
    if behind:
        many = min(widest_run(behind, {stage.buffer}), ACCESS_BYTES // read)
    innermost = next((int(axis.extent) for axis in reversed(stage.spatial) if axis.extent != 1), 1)
    extent = innermost if guards(stage.value) or behind else prod(shape_of(stage.buffer))
    while extent % many:
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
        bindings = loaded.bind(resolver.bindings)
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
