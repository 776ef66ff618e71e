"""What the core asks of CUDA devices: which there are, and a model on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backends.cuda.devices import DEVICES
from backends.cuda.runtime.code_file import CodeFile
from backends.cuda.runtime.device import choose_device, device_of, driver_version, find_devices
from backends.cuda.runtime.estimates import estimate_kernels
from backends.cuda.runtime.executable import CudaExecutable
from backends.device_run import DeviceFigures, DeviceRun, DeviceWork
from backends.kernel import KernelInfo
from fusion.errors import FusionError, TargetError


@dataclass(frozen=True)
class CudaRuntime:
    """A `DeviceRuntime`."""

    def describe(self) -> dict[str, str]:
        """See `DeviceRuntime`."""
        try:
            found = {device.label: str(device) for device in find_devices()}
            return {**found, "cuda driver": f"of CUDA {driver_version()}"}
        except FusionError as error:
            return {"cuda": f"{error.what}: {error.why}"}

    def figures(self) -> tuple[DeviceFigures, ...]:
        """See `DeviceRuntime`."""
        return tuple(
            DeviceFigures(
                name=each.name,
                arch=each.arch,
                gflops={
                    "fp32": each.gflops(""), "tf32": each.gflops("tfloat32"), "bf16": each.gflops("bfloat16"),
                },
                gbs=each.gbs,
                memory_bytes=each.memory_bytes,
                start_us=each.kernel_s * 1e6,
                source=each.source,
            )
            for each in DEVICES.values()
        )  # fmt: skip

    def target_of(self, ordinals: Sequence[int]) -> str:
        """See `DeviceRuntime`."""
        archs = {device_of(ordinal).arch: None for ordinal in ordinals}
        return f"cuda -arch={','.join(archs)}"

    def refusal(self, archs: Sequence[str], ordinal: int | None = None) -> TargetError | None:
        """See `DeviceRuntime`."""
        try:
            choose_device(archs, ordinal)
        except TargetError as error:
            return error
        return None

    def estimate(self, code: bytes, kernels: Mapping[str, KernelInfo]) -> Mapping[str, Sequence[DeviceWork]]:
        """See `DeviceRuntime`."""
        return estimate_kernels(CodeFile(code), kernels)

    def load(
        self, code: bytes, run: DeviceRun, weights: Sequence[Any], ordinal: int | None = None
    ) -> CudaExecutable:
        """See `DeviceRuntime`."""
        return CudaExecutable(choose_device(CodeFile(code).archs, ordinal), code, run, weights)


RUNTIME = CudaRuntime()
