"""Reads a kernel of reductions with what is elementwise before, between and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import TensorLoad, Var

from backends.cuda.kernels.device_arithmetic import in_float32
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, elementwise_region
from backends.tensorir.stages import Stage, dims_of, dtype_of, output_buffers, read_stages, shape_of
from fusion.declined import Declined
from fusion.structural import map_nodes


@dataclass(frozen=True)
class Reductions:
    """Reductions in order, of which later ones may read earlier ones.

    Attributes:
        reductions: Each into a buffer of its own.
        regions: The other stages, and what of them is stored: one for each shape that outputs have.
    """

    reductions: tuple[Stage, ...]
    regions: tuple[ElementwiseRegion, ...]


def read_reductions(func: tirx.PrimFunc) -> Reductions:
    """Return the parts of `func`.

    Raises:
        Declined: Something is empty, or `elementwise_region` declines the rest.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    if any(0 in shape_of(stage.buffer) or stage.points == 0 for stage in stages):
        raise Declined("it is empty")
    wide = in_float32(_stored_apart(stages, outputs), outputs)
    elementwise = [stage for stage in wide if stage.combine is None]
    reductions = tuple(stage for stage in wide if stage.combine is not None)
    shapes = {shape_of(stage.buffer): None for stage in elementwise if stage.buffer in outputs}
    stored = ({buffer for buffer in outputs if shape_of(buffer) == shape} for shape in shapes)
    return Reductions(reductions, tuple(elementwise_region(elementwise, each) for each in stored))


def _stored_apart(stages: list[Stage], outputs: set[Var]) -> list[Stage]:
    """Return stages in which no reduction is an output: those that were are copied into it."""
    made: dict[Var, Var] = {}
    found = []
    for stage in stages:
        if stage.combine is None or stage.buffer not in outputs:
            found.append(_reading(stage, made))
            continue
        sums = tirx.decl_buffer(dims_of(stage.buffer), dtype_of(stage.buffer), f"{stage.buffer.name}_reduced")
        found.append(replace(_reading(stage, made), buffer=sums, offsets=()))
        value = tirx.BufferLoad(sums, [axis.var for axis in stage.spatial])
        found.append(Stage(stage.buffer, stage.spatial, (), value, offsets=stage.offsets))
        made[stage.buffer] = sums
    return found


def _reading(stage: Stage, made: Mapping[Var, Var]) -> Stage:
    def load(load: TensorLoad) -> TensorLoad:
        return tirx.BufferLoad(made.get(load.source, load.source), list(load.indices))

    return replace(stage, value=map_nodes(stage.value, (TensorLoad, load))) if made else stage
