"""The launches of a kernel of reductions, and which loops each of them has."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from tvm import tirx

from backends.cuda.codegen.launches import join_launches
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.launch import check_sizes
from backends.cuda.kernels.pointwise.emit import emit_elements, widest_run
from backends.cuda.kernels.reductions.by_shape import emit_shapes
from backends.cuda.kernels.reductions.groups.emit import emit_groups
from backends.cuda.kernels.reductions.groups.read import grouped_sum
from backends.cuda.kernels.reductions.groups.tile import GroupTile, choose_tile
from backends.cuda.kernels.reductions.in_place import emit_in_place
from backends.cuda.kernels.reductions.read import Reduction, Reductions, read_reductions
from backends.cuda.kernels.reductions.results import store_results
from backends.cuda.kernels.reductions.runs.choose import runs_of
from backends.cuda.kernels.reductions.runs.emit import emit_runs
from backends.cuda.kernels.reductions.split import split
from backends.cuda.kernels.registers import ACCESS_BYTES
from backends.cuda.kernels.rows.emit import emit_region
from backends.cuda.kernels.rows.read import RowRegion, region_of_rows
from backends.tensorir.stages import item_bytes_of
from fusion.declined import Declined

_SHORTEST_ROW = 32
"""Elements that lie next to each other in memory, and are reduced by lanes of a warp or a block."""


def emit_reductions(func: tirx.PrimFunc, device: CudaDevice) -> tirx.PrimFunc:
    """Return `func` as one launch for each reduction, the last of which makes the outputs too, where these read only
    the element of the same place; otherwise one more launch for each shape of them makes them.

    Where outputs of one shape alone are made of what is reduced, as rows, each shape is a launch (`by_shape.py`). A
    long reduction of few results is two launches (`split.py`).

    Raises:
        Declined: `read_reductions` cannot read it, or it is too large.
    """
    parts = read_reductions(func)
    try:
        return join_launches(func, [], list(emit_shapes(parts, device)))
    except Declined:
        pass
    steps = [step for stage in parts.reductions for step in _steps(Reduction(stage, parts.elementwise), device)]
    workspaces = [step.stage.buffer for step in steps]
    bodies = [_emit_reduction(step, device) for step in steps[:-1]]
    try:
        bodies.append(_emit_last(parts, steps, device))
        workspaces.pop()
    except Declined:
        bodies += [_emit_reduction(step, device) for step in steps[-1:]]
        bodies += map(emit_elements, parts.regions)
    return join_launches(func, workspaces, bodies) if len(bodies) > 1 else func.with_body(bodies[0])


def _steps(reduction: Reduction, device: CudaDevice) -> Iterator[Reduction]:
    """Yield a reduction as one, or as two."""
    is_split = _tile_of_groups(reduction, device) is None
    found = split(reduction.inlined, device, in_rows=_rows_of(reduction) is not None) if is_split else None
    for stage in (reduction.stage,) if found is None else (found.parts, found.total):
        yield replace(reduction, stage=stage)


def _emit_last(parts: Reductions, steps: list[Reduction], device: CudaDevice) -> tirx.Stmt:
    """Return the loops of the last reduction with all outputs as its epilogue.

    Raises:
        Declined: There is none, or outputs are of several shapes, or of another one, or read other results.
    """
    if not steps or len(parts.regions) > 1:
        raise Declined("no reduction makes all outputs")
    return _emit_reduction(replace(steps[-1], epilogue=parts.regions[0]), device)


def _emit_reduction(reduction: Reduction, device: CudaDevice) -> tirx.Stmt:
    """Return the loops of one reduction: those of rows, where neighbours of what is reduced lie next to each other;
    of convolutions in groups; of blocks that bring what they read, where threads would use sectors badly; or of
    threads that read all where it lies.

    Raises:
        Declined: The epilogue is of another size, or reads other elements.
    """
    epilogue = reduction.epilogue
    check_sizes(reduction.stage.buffer)
    if epilogue is not None and epilogue.elements != reduction.results:
        raise Declined("what is stored has another size than what is reduced")
    rows = _rows_of(reduction)
    if rows is not None:
        return emit_region(rows, device)
    tile = _tile_of_groups(reduction, device)
    if tile is not None:
        return emit_groups(tile, partial(store_results, reduction))
    runs = runs_of(reduction)
    return emit_in_place(reduction) if runs is None else emit_runs(runs)


def _rows_of(reduction: Reduction) -> RowRegion | None:
    """Return a reduction with its epilogue as one of rows that lie in memory; None where they are none."""
    behind = () if reduction.epilogue is None else reduction.epilogue.outputs
    stages = [replace(reduction, stage=stage).inlined for stage in (reduction.stage, *behind)]
    try:
        region = region_of_rows(stages, set(reduction.stored))
    except Declined:
        return None
    return region if region.width >= _SHORTEST_ROW else None


def _tile_of_groups(reduction: Reduction, device: CudaDevice) -> GroupTile | None:
    """Return the results of a block, of a convolution in groups; None of other reductions."""
    found = grouped_sum(reduction.inlined)
    if found is None:
        return None
    stored = item_bytes_of(reduction.stored[0])
    widest = ACCESS_BYTES // max(found.item_bytes, item_bytes_of(found.weights), stored)
    if reduction.epilogue is not None:
        widest = min(widest, widest_run(reduction.epilogue, (reduction.stage.buffer,)))
    return choose_tile(found, widest, stored, device)
