"""CUDA devices, through NVRTC."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

import tvm
from tvm import tirx

from backends.backend import Load, Lowering, ObjectCache, ObjectWriter
from backends.cuda.codegen.device_code import write_code
from backends.cuda.devices import CudaDevice
from backends.cuda.kernels.attention import estimate_attention
from backends.cuda.legalize import LEGALIZATIONS as OURS
from backends.cuda.lowerings import LOWERINGS
from backends.cuda.policies import CudaLayouts, CudaRounding
from backends.cuda.runtime.architectures import capability_of
from backends.cuda.schedule import schedule
from backends.cuda.target import resolve_target
from backends.kernel import UNSCHEDULED
from backends.machine_limits import Level, MachineLimits
from backends.memory_costs import MemoryCosts
from backends.tensorir.estimate import Estimate
from backends.tensorir.legalize import LEGALIZATIONS, SAFE
from backends.tensorir.legalize.common import FLegalize
from backends.tensorir.result import Scheduled
from backends.tensorir.space import Choices, Point
from fusion.declined import Declined
from fusion.errors import TargetError

_SECTOR = 32
"""Bytes that one access of memory brings at least."""


@dataclass(frozen=True)
class CudaCompiler:
    """A `KernelCompiler` for one device.

    Attributes:
        tfloat32: Whether products of float32 round their operands for tensor cores.
        libraries: Names of those that may run kernels.
    """

    target: tvm.target.Target
    machine: CudaDevice
    threads: int
    features: frozenset[str]
    tfloat32: bool = False
    libraries: tuple[str, ...] = ()

    @property
    def device(self) -> str:
        """See `KernelCompiler`."""
        loops = "" if len(self.archs) == 1 else "loops of "
        return f"{' and '.join(self.archs)} ({loops}{self.machine.name})"

    @property
    def archs(self) -> tuple[str, ...]:
        """What there is machine code for, ascending."""
        return tuple(sorted(self.features, key=capability_of))

    @cached_property
    def layouts(self) -> CudaLayouts:
        """See `KernelCompiler`."""
        return CudaLayouts(self.machine)

    @property
    def rounding(self) -> CudaRounding:
        """See `KernelCompiler`."""
        return CudaRounding(self.machine)

    @property
    def memory(self) -> MemoryCosts:
        """See `KernelCompiler`."""
        start = int(self.machine.gbs * 1e9 * self.machine.kernel_s)
        return MemoryCosts(start=start, call=start, run=_SECTOR, anchored_run=_SECTOR)

    @property
    def lowerings(self) -> Mapping[str, tuple[Lowering, ...]]:
        """See `KernelCompiler`."""
        return LOWERINGS

    @property
    def legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return {**LEGALIZATIONS, **OURS}

    @property
    def safe_legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return {**SAFE, **{name: OURS[name] for name in SAFE.keys() & OURS.keys()}}

    @property
    def byte_products(self) -> tuple[tuple[str, str], ...]:
        """See `KernelCompiler`."""
        return ()

    def why_not_precision(self, precision: str) -> str:
        """See `KernelCompiler`."""
        return ""

    def at_precision(self, precision: str) -> CudaCompiler:
        """See `KernelCompiler`; operands in bfloat16 are so in the graph."""
        return replace(self, tfloat32=precision == "tf32")

    def with_libraries(self, names: Sequence[str]) -> CudaCompiler:
        """See `KernelCompiler`."""
        return replace(self, libraries=tuple(names))

    def why_not_taken(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        made = self.schedule(kernel)
        return made.note if made.template == UNSCHEDULED else ""

    def why_not_fused(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        try:
            return estimate_attention(kernel, self.machine, tfloat32=self.tfloat32).reason
        except Declined as reason:
            return str(reason)

    def estimate_fusion(self, kernel: tirx.PrimFunc) -> Estimate | None:
        """See `KernelCompiler`."""
        try:
            return estimate_attention(kernel, self.machine, tfloat32=self.tfloat32)
        except Declined:
            return None

    def choices(self, kernel: tirx.PrimFunc) -> Choices | None:
        """See `KernelCompiler`."""
        return None

    def schedule(self, kernel: tirx.PrimFunc, point: Point | None = None, *, plain: bool = False) -> Scheduled:
        """See `KernelCompiler`; there are no plain loops for a device."""
        return schedule(kernel, self.machine, tfloat32=self.tfloat32, libraries=self.libraries)

    def generate_module(self, kernels: tvm.IRModule) -> tvm.runtime.Module:
        """See `KernelCompiler`."""
        raise self._not_here()

    def object_writer(self, folder: Path, kept: ObjectCache | None) -> AbstractContextManager[ObjectWriter]:
        """See `KernelCompiler`."""
        raise self._not_here()

    def device_code(self, kernels: Mapping[str, tirx.PrimFunc]) -> bytes:
        """See `KernelCompiler`."""
        return write_code(kernels, self.archs)

    def foreign(self) -> str:
        """See `KernelCompiler`."""
        return f"the target is {self.device}, and kernels of CUDA devices are not measured yet"

    def describe(self) -> dict[str, str]:
        """See `KernelCompiler`."""
        return {"device": self.device, "figures": self.machine.source}

    def private_bytes(self) -> int:
        """See `KernelCompiler`."""
        return 0

    def nominal_limits(self) -> MachineLimits:
        """See `KernelCompiler`."""
        machine = self.machine
        levels = (Level("L2", machine.l2_bytes, machine.l2_gbs * machine.sms), Level("memory", 0, machine.gbs))
        return MachineLimits(self.threads, machine.float16_gflops, levels)

    def estimate_us(self, cycles: float) -> float:
        """See `KernelCompiler`."""
        return cycles / self.machine.clock_hz * 1e6

    def measure_limits(self, load: Load) -> MachineLimits:
        """See `KernelCompiler`."""
        raise self._not_here()

    def _not_here(self) -> TargetError:
        return TargetError(f"no linker makes code for {self.device}", why="it is `device_code`", hint="report it")


@dataclass(frozen=True)
class CudaBackend:
    """A `Backend`."""

    kinds: tuple[str, ...] = ("cuda",)

    def compiler(self, fields: Mapping[str, object], threads: int) -> CudaCompiler:
        """See `Backend`."""
        found = resolve_target(fields)
        return CudaCompiler(found.target, found.device, threads, frozenset(found.archs))


BACKEND = CudaBackend()
