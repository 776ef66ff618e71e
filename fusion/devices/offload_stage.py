"""What runs the part of a model on a device beside the CPU."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.module.offload_program import OffloadProgram
from fusion.module.plan import RunPlan
from fusion.module.specialization import Code
from fusion.runtime import Tensor


@dataclass(frozen=True, eq=False)
class OffloadStage:
    """A `StageProgram` of kernels on such a device: tensors come from this process, and go back to it."""

    code: Code
    program: OffloadProgram

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """See `StageProgram`."""
        return self.code.weights

    @property
    def plan(self) -> RunPlan:
        """See `StageProgram`."""
        return self.code.plan

    def run(self, values: Sequence[np.ndarray], threads: int) -> tuple[np.ndarray, ...]:
        """See `StageProgram`."""
        return self.program.run(values)
