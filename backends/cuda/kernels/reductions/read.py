"""Reads a kernel of reductions with what is elementwise before, between and behind them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tvm import tirx
from tvm.ir import Var

from backends.cuda.kernels.device_arithmetic import in_float32
from backends.cuda.kernels.inlined import inlined_stage
from backends.cuda.kernels.pointwise.read import ElementwiseRegion, elementwise_region
from backends.cuda.kernels.stored_apart import stored_apart
from backends.tensorir.stages import Stage, dtype_of, item_bytes_of, loads, output_buffers, read_stages, shape_of
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

    @property
    def elementwise(self) -> Mapping[Var, Stage]:
        """The other stages, by what they make."""
        return self.regions[0].stages


@dataclass(frozen=True)
class Reduction:
    """One reduction, the work of a launch, with what is elementwise around it.

    Attributes:
        stage: What is reduced, into a buffer that is in memory where there is no epilogue.
        prologue: The stages that it may read through, by what they make.
        epilogue: What is stored of each result, in its place.
    """

    stage: Stage
    prologue: Mapping[Var, Stage]
    epilogue: ElementwiseRegion | None = None

    @cached_property
    def inlined(self) -> Stage:
        """The stage with its prologue inside, which reads memory alone."""
        return inlined_stage(self.stage, self.prologue)

    @property
    def results(self) -> int:
        """How many there are."""
        return prod(shape_of(self.stage.buffer))

    @property
    def stored(self) -> tuple[Var, ...]:
        """What is written to memory."""
        if self.epilogue is None:
            return (self.stage.buffer,)
        return tuple(output.buffer for output in self.epilogue.outputs)

    @property
    def stored_bytes(self) -> int:
        """Of a result in memory, of the narrowest tensor that is written."""
        return min(map(item_bytes_of, self.stored))

    @property
    def read_behind(self) -> tuple[Var, ...]:
        """What of memory the epilogue reads, once each."""
        if self.epilogue is None:
            return ()
        read, made = self.epilogue.read(), {self.stage.buffer, *self.epilogue.stages}
        every = dict.fromkeys(load.source for each in self.epilogue.stages.values() for load in loads(each.value))
        return tuple(buffer for buffer in every if buffer in read and buffer not in made)


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
