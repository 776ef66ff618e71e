"""Outputs of several shapes of which one alone is made of what is reduced: a launch for each shape, that one as rows.

So are a softmax with the mask that it adds, and a layer norm with one of its rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tvm import tirx
from tvm.ir import Var

from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.inlined import inlined_stage
from backends.cuda.kernels.pointwise.emit import emit_elements
from backends.cuda.kernels.reductions.read import Reductions
from backends.cuda.kernels.rows.emit import emit_region
from backends.cuda.kernels.rows.read import region_of_rows
from fusion.declined import Declined


def emit_shapes(parts: Reductions, device: CudaDevice) -> Iterator[tirx.Stmt]:
    """Yield the loops of the outputs of each shape, which read what those before them stored: of one shape with all
    reductions, as rows.

    Raises:
        Declined: There is one shape, several are made of what is reduced, or they are none of rows.
    """
    reduced = {stage.buffer for stage in parts.reductions}
    stored, of_rows = set[Var](), 0
    for region in parts.regions:
        others = {buffer: stage for buffer, stage in region.stages.items() if buffer not in stored}
        own = replace(region, stages=others)
        stored |= {stage.buffer for stage in own.outputs}
        if not reduced & own.read():
            yield emit_elements(own)
            continue
        of_rows += 1
        stages = [inlined_stage(stage, own.stages) for stage in (*parts.reductions, *own.outputs)]
        yield emit_region(region_of_rows(stages, {stage.buffer for stage in own.outputs}), device)
    if of_rows != 1 or len(parts.regions) == 1:
        raise Declined("outputs of several shapes are made of what is reduced, or there is one shape")
