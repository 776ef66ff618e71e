"""What runs the part of a model on CPUs of this machine."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from fusion.module.plan import RunPlan
from fusion.module.program import KernelProgram
from fusion.runtime import Tensor


@dataclass(frozen=True, eq=False)
class LocalProgram:
    """A `StageProgram` of kernels in this process."""

    kernels: KernelProgram

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """See `StageProgram`."""
        return self.kernels.weights

    @property
    def plan(self) -> RunPlan:
        """See `StageProgram`."""
        return self.kernels.plan

    def run(self, values: Sequence[np.ndarray], threads: int) -> tuple[np.ndarray, ...]:
        """See `StageProgram`."""
        arena = self.kernels.arenas.take()
        try:
            self.kernels.library.use_threads(threads)
            return self.kernels.run_in(arena, values)
        finally:
            self.kernels.arenas.give(arena)
