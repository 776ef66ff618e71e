"""What writes kernels for a CPU: operators as anchors, what pays, loops and machine code.

Importing it imports all families of kernels, which takes 0.26 s of the second that a compilation from the cache takes:
`backend.py` does so once something is to be written.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import tvm
from tvm import tirx

from backends.backend import Lowering, ObjectCache
from backends.cpu.codegen.generate import generate_module
from backends.cpu.codegen.objects import ObjectFiles, object_files
from backends.cpu.lowerings import lowerings
from backends.cpu.machine import Machine
from backends.cpu.profitability import estimate_fusion, why_not_fused, why_not_taken
from backends.cpu.rounding_policy import CpuRounding
from backends.cpu.schedule import read_choices, schedule
from backends.tensorir.estimate import Estimate
from backends.tensorir.legalize import LEGALIZATIONS, SAFE
from backends.tensorir.legalize.common import FLegalize
from backends.tensorir.result import Scheduled
from backends.tensorir.space import Choices, Point


@dataclass(frozen=True)
class KernelWriter:
    """The part of a `KernelCompiler` that writes, for one CPU."""

    target: tvm.target.Target
    machine: Machine
    threads: int

    @cached_property
    def rounding(self) -> CpuRounding:
        """See `KernelCompiler`."""
        return CpuRounding(self.machine, self.threads)

    @cached_property
    def lowerings(self) -> Mapping[str, tuple[Lowering, ...]]:
        """See `KernelCompiler`."""
        return lowerings(self.machine.vector_lanes)

    @property
    def legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return LEGALIZATIONS

    @property
    def safe_legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return SAFE

    def why_not_taken(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        return why_not_taken(kernel)

    def why_not_fused(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        return why_not_fused(kernel, self.machine, self.threads)

    def estimate_fusion(self, kernel: tirx.PrimFunc) -> Estimate | None:
        """See `KernelCompiler`."""
        return estimate_fusion(kernel, self.machine, self.threads)

    def choices(self, kernel: tirx.PrimFunc) -> Choices | None:
        """See `KernelCompiler`."""
        return read_choices(kernel, self.machine, self.threads)

    def schedule(self, kernel: tirx.PrimFunc, point: Point | None = None, *, plain: bool = False) -> Scheduled:
        """See `KernelCompiler`."""
        return schedule(kernel, self.machine, self.threads, point, plain=plain)

    def generate_module(self, kernels: tvm.IRModule) -> tvm.runtime.Module:
        """See `KernelCompiler`."""
        with self.target:  # threads have no target but their own
            return generate_module(kernels, self.target)

    def object_writer(self, folder: Path, kept: ObjectCache | None) -> AbstractContextManager[ObjectFiles]:
        """See `KernelCompiler`."""
        return object_files(self.target, folder, kept)
