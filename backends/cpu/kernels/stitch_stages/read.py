"""Reads a kernel without an anchor: its stages, those that live in memory and those that are inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import structural_equal

from backends.tensorir.accesses import Accesses, stage_accesses
from backends.tensorir.inlining import inline_stages
from backends.tensorir.stages import Stage, loads, output_buffers, read_stages, shape_of
from fusion.declined import Declined


@dataclass(frozen=True)
class StageGroup:
    """The stages of one kernel: those that live in memory, and those that are inlined."""

    kept: Sequence[Stage]
    inlined: Mapping[Var, Stage]
    outputs: Set[Var]
    accesses: Mapping[Var, Accesses]

    @classmethod
    def read(cls, func: tirx.PrimFunc) -> StageGroup:
        """Return the stages of `func`.

        Raises:
            Declined: `read_stages` cannot read it, or only a part of its buffers is empty.
        """
        stages = [_without_empty_sum(stage) for stage in read_stages(func)]
        outputs = output_buffers(func, stages)
        stages = _write_slices(stages, outputs)
        if all(stage.iterations for stage in stages):
            return cls.of(stages, outputs)
        if any(0 not in shape_of(stage.buffer) for stage in stages):
            raise Declined("some of the shapes are empty, some are not")
        return cls([], {}, outputs, {})

    @classmethod
    def of(cls, stages: list[Stage], outputs: set[Var]) -> StageGroup:
        """Return `stages`, of which `outputs` are read outside of them."""
        inlined = inline_stages(stages, outputs)
        kept = [stage for stage in stages if stage.buffer not in inlined]
        return cls(kept, inlined, outputs, {s.buffer: stage_accesses(s, inlined) for s in kept})

    @property
    def is_empty(self) -> bool:
        """Whether every buffer is empty."""
        return not self.kept


def _without_empty_sum(stage: Stage) -> Stage:
    """Return a reduction over nothing as what it begins with."""
    if stage.combine is None or all(axis.extent for axis in stage.reduce):
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
