"""The stages that are stitched together: those that live in memory, and those that are inlined."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from tvm.ir import Var

from backends.cpu.kernels.shared.stitching.softmax_weights import with_weights
from backends.tensorir.accesses import Accesses, stage_accesses
from backends.tensorir.inlining import inline_stages
from backends.tensorir.stages import Stage


@dataclass(frozen=True)
class StageGroup:
    """The stages of one kernel: those that live in memory, and those that are inlined."""

    kept: Sequence[Stage]
    inlined: Mapping[Var, Stage]
    outputs: Set[Var]
    accesses: Mapping[Var, Accesses]

    @classmethod
    def of(cls, stages: list[Stage], outputs: set[Var]) -> StageGroup:
        """Return `stages`, of which `outputs` are read outside of them."""
        stages = with_weights(stages)
        inlined = inline_stages(stages, outputs)
        kept = [stage for stage in stages if stage.buffer not in inlined]
        return cls(kept, inlined, outputs, {s.buffer: stage_accesses(s, inlined) for s in kept})

    @property
    def is_empty(self) -> bool:
        """Whether every buffer is empty."""
        return not self.kept
