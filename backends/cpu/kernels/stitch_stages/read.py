"""Reads a kernel without an anchor."""

from __future__ import annotations

from dataclasses import replace

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.cpu.kernels.shared.stitching.stage_group import StageGroup
from backends.tensorir.stages import Stage, loads, output_buffers, read_stages, shape_of
from fusion.declined import Declined


def read_stage_group(func: tirx.PrimFunc) -> StageGroup:
    """Return the stages of `func`.

    Raises:
        Declined: `read_stages` cannot read it, or only a part of its buffers is empty.
    """
    stages = [_without_empty_sum(stage) for stage in read_stages(func)]
    outputs = output_buffers(func, stages)
    stages = _write_slices(stages, outputs)
    if all(stage.iterations for stage in stages):
        return StageGroup.of(stages, outputs)
    if any(0 not in shape_of(stage.buffer) for stage in stages):
        raise Declined("some of the shapes are empty, some are not")
    return StageGroup([], {}, outputs, {})


def _without_empty_sum(stage: Stage) -> Stage:
    """Return a reduction over nothing as what it begins with."""
    if stage.combine is None or all(axis.extent != 0 for axis in stage.reduce):
        return stage
    return Stage(stage.buffer, stage.spatial, (), stage.identity)


def _write_slices(stages: list[Stage], outputs: set[Var]) -> list[Stage]:
    """Let a reduction that only a copy into a slice reads write that slice: `sum = ..; joined[i + 64] = sum[i]`."""
    result = list(stages)
    for copy in [stage for stage in stages if stage.offsets and isinstance(stage.value, TensorLoad)]:
        made = next((stage for stage in result if stage.buffer.same_as(copy.value.source)), None)
        if made is None or made.buffer in outputs or made.combine is None:
            continue
        readers = [stage for stage in result if any(load.source.same_as(made.buffer) for load in loads(stage.value))]
        axes = [axis.var for axis in copy.spatial]
        if readers == [copy] and all(map(structural_equal, copy.value.indices, axes)):
            result[result.index(copy)] = replace(made, buffer=copy.buffer, offsets=copy.offsets)
            result.remove(made)
    return result
