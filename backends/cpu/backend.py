"""The CPU backend, which compiles through LLVM."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import tvm
from tvm import tirx

from backends.backend import Load, Lowering, ObjectCache
from backends.cpu import limits
from backends.cpu.byte_dots import LEFT, PAIR, RIGHT
from backends.cpu.costs import ANCHORED_RUN_BYTES, CALL_BYTES, CLOCK_GHZ, LAUNCH_BYTES, RUN_BYTES
from backends.cpu.layout_policy import CpuLayouts
from backends.cpu.machine import DOT_BFLOAT16, Machine, machine_of
from backends.cpu.target import architecture_of, foreign, resolve_target
from backends.host_features import features_of
from backends.machine_limits import MachineLimits
from backends.memory_costs import MemoryCosts
from fusion.system.first_imports import importing

if TYPE_CHECKING:
    from backends.cpu.codegen.objects import ObjectFiles
    from backends.cpu.kernel_writer import KernelWriter
    from backends.cpu.rounding_policy import CpuRounding
    from backends.tensorir.estimate import Estimate
    from backends.tensorir.legalize.common import FLegalize
    from backends.tensorir.result import Scheduled
    from backends.tensorir.space import Choices, Point

_SHOWN_FEATURES = (
    "avx2", "fma", "avx512f", "avx512bf16", "avx512vnni", "avx512fp16", "amx-bf16", "neon", "dotprod", "sve",
)  # fmt: skip
"""The features on which the speed of kernels depends, as LLVM names them."""


@cache
def _kernel_writer() -> type[KernelWriter]:
    """Return the class, which is imported here, not above: a compilation that is cached does not need it."""
    with importing():
        from backends.cpu.kernel_writer import KernelWriter
    return KernelWriter


@dataclass(frozen=True)
class CpuCompiler:
    """A `KernelCompiler` for one CPU."""

    target: tvm.target.Target
    features: frozenset[str]
    machine: Machine
    threads: int

    @property
    def device(self) -> str:
        """See `KernelCompiler`: kernels run in this process."""
        return ""

    @property
    def writer(self) -> KernelWriter:
        """The part that schedules and compiles kernels."""
        _kernel_writer()  # not under the lock of a cached property, which a fork meanwhile would leave locked
        return self._writer

    @cached_property
    def _writer(self) -> KernelWriter:
        return _kernel_writer()(self.target, self.machine, self.threads)

    @cached_property
    def layouts(self) -> CpuLayouts:
        """See `KernelCompiler`."""
        return CpuLayouts(self.machine.vector_lanes)

    @property
    def rounding(self) -> CpuRounding:
        """See `KernelCompiler`."""
        return self.writer.rounding

    @property
    def memory(self) -> MemoryCosts:
        """See `KernelCompiler`."""
        return MemoryCosts(LAUNCH_BYTES, CALL_BYTES, RUN_BYTES, ANCHORED_RUN_BYTES)

    @property
    def lowerings(self) -> Mapping[str, tuple[Lowering, ...]]:
        """See `KernelCompiler`."""
        return self.writer.lowerings

    @property
    def legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return self.writer.legalizations

    @property
    def safe_legalizations(self) -> Mapping[str, FLegalize]:
        """See `KernelCompiler`."""
        return self.writer.safe_legalizations

    @property
    def byte_products(self) -> tuple[tuple[str, str], ...]:
        """See `KernelCompiler`."""
        has_kernels = {(LEFT, RIGHT): self.machine.dot_bytes, (PAIR, PAIR): self.machine.dot_pairs}
        return tuple(dtypes for dtypes, has in has_kernels.items() if has)

    def why_not_precision(self, precision: str) -> str:
        """See `KernelCompiler`."""
        if precision == "tf32":
            return "tensor cores of CUDA devices have it"
        if precision != "bf16" or self.machine.dot_bfloat16:
            return ""
        return f"LLVM's feature {DOT_BFLOAT16!r} is not among those of the target"

    def at_precision(self, precision: str) -> CpuCompiler:
        """See `KernelCompiler`; the graph itself has the dtypes of operands in bfloat16."""
        return self

    def with_libraries(self, names: Sequence[str]) -> CpuCompiler:
        """See `KernelCompiler`; no library runs single kernels of a CPU."""
        return self

    def why_not_taken(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        return self.writer.why_not_taken(kernel)

    def why_not_fused(self, kernel: tirx.PrimFunc) -> str:
        """See `KernelCompiler`."""
        return self.writer.why_not_fused(kernel)

    def estimate_fusion(self, kernel: tirx.PrimFunc) -> Estimate | None:
        """See `KernelCompiler`."""
        return self.writer.estimate_fusion(kernel)

    def choices(self, kernel: tirx.PrimFunc) -> Choices | None:
        """See `KernelCompiler`."""
        return self.writer.choices(kernel)

    def schedule(self, kernel: tirx.PrimFunc, point: Point | None = None, *, plain: bool = False) -> Scheduled:
        """See `KernelCompiler`."""
        return self.writer.schedule(kernel, point, plain=plain)

    def generate_module(self, kernels: tvm.IRModule) -> tvm.runtime.Module:
        """See `KernelCompiler`."""
        return self.writer.generate_module(kernels)

    def object_writer(self, folder: Path, kept: ObjectCache | None) -> AbstractContextManager[ObjectFiles]:
        """See `KernelCompiler`."""
        return self.writer.object_writer(folder, kept)

    def device_code(self, kernels: Mapping[str, tirx.PrimFunc]) -> bytes:
        """See `KernelCompiler`: there is no device."""
        raise NotImplementedError

    def foreign(self) -> str:
        """See `KernelCompiler`."""
        return foreign(self.target)

    def describe(self) -> dict[str, str]:
        """See `KernelCompiler`."""
        shown = " ".join(name for name in _SHOWN_FEATURES if name in self.features)
        machine = self.machine
        sizes = (machine.l1_bytes, machine.l2_bytes, machine.l3_bytes)
        return {
            "cpu": f"{self.target.attrs.get('mcpu', '')} ({architecture_of(self.target)}): {shown}",
            "caches": " / ".join(f"{size / 1024:.0f} KiB" for size in sizes),
        }

    def private_bytes(self) -> int:
        """See `KernelCompiler`."""
        return self.threads * self.machine.l2_bytes

    def nominal_limits(self) -> MachineLimits:
        """See `KernelCompiler`."""
        return limits.nominal_limits(self.machine, self.threads)

    def estimate_us(self, cycles: float) -> float:
        """See `KernelCompiler`."""
        return cycles / (CLOCK_GHZ * 1e3)

    def measure_limits(self, load: Load) -> MachineLimits:
        """See `KernelCompiler`."""
        return limits.measure_limits(self.machine, self.threads, load)


@dataclass(frozen=True)
class CpuBackend:
    """A `Backend`."""

    kinds: tuple[str, ...] = ("llvm",)

    def compiler(self, fields: Mapping[str, object], threads: int) -> CpuCompiler:
        """See `Backend`."""
        target = resolve_target(fields)
        features = features_of(target)
        return CpuCompiler(target, features, machine_of(target, features), threads)


BACKEND = CpuBackend()
