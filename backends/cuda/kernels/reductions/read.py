"""Reads a kernel of reductions with what is elementwise before, between and behind them."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import tirx

from backends.cuda.kernels.device_arithmetic import in_float32
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, elementwise_region
from backends.cuda.kernels.stored_apart import stored_apart
from backends.tensorir.stages import Stage, dtype_of, output_buffers, read_stages, shape_of
from fusion.declined import Declined


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
        Declined: Something is empty, a reduction is in float64, or `elementwise_region` declines the rest.
    """
    stages = read_stages(func)
    outputs = output_buffers(func, stages)
    if any(0 in shape_of(stage.buffer) or stage.points == 0 for stage in stages):
        raise Declined("it is empty")
    if any(dtype_of(stage.buffer) == "float64" for stage in stages if stage.combine is not None):
        raise Declined("it computes in float64")
    wide = in_float32(stored_apart(stages, outputs), outputs)
    elementwise = [stage for stage in wide if stage.combine is None]
    reductions = tuple(stage for stage in wide if stage.combine is not None)
    shapes = {shape_of(stage.buffer): None for stage in elementwise if stage.buffer in outputs}
    stored = ({buffer for buffer in outputs if shape_of(buffer) == shape} for shape in shapes)
    return Reductions(reductions, tuple(elementwise_region(elementwise, each, outputs) for each in stored))
