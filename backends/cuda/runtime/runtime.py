"""What the core asks of CUDA devices: which there are, and a model on one of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError
from typing import Any

from backends.cuda.codegen.nvcc import find_nvcc
from backends.cuda.codegen.nvrtc import nvrtc_version
from backends.cuda.devices import DEVICES
from backends.cuda.libraries.cublaslt.library import LIBRARY as CUBLASLT
from backends.cuda.libraries.cudnn.library import LIBRARY as CUDNN
from backends.cuda.runtime.code_file import CodeFile
from backends.cuda.runtime.estimates import estimate_kernels
from backends.cuda.runtime.executable import CudaExecutable
from backends.cuda.runtime.found_devices import choose_device, device_of, driver_version, find_devices
from backends.device_run import DeviceFigures, DeviceRun, DeviceWork
from backends.kernel import KernelInfo
from fusion.errors import FusionError, TargetError


@dataclass(frozen=True)
class CudaRuntime:
    """A `DeviceRuntime`."""

    def describe(self) -> dict[str, str]:
        """See `DeviceRuntime`; and what of NVIDIA's is installed that compiles kernels, or runs in their place."""
        try:
            found = {device.label: str(device) for device in find_devices()}
            found["cuda driver"] = f"of CUDA {driver_version()}"
        except FusionError as error:
            found = {"cuda": f"{error.what}: {error.why}"}
        return {**found, "nvrtc": nvrtc_version(), "nvcc": find_nvcc() or "none", **_library_versions()}

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


def _library_versions() -> dict[str, str]:
    """Return the versions of the libraries that may run kernels, by what `backends=` calls them."""
    found = {}
    for name, library in (("cublaslt", CUBLASLT), ("cudnn", CUDNN)):
        try:
            found[name] = library.version
        except PackageNotFoundError:
            found[name] = f"none: pip install {library.packages[0]}"
    return found


RUNTIME = CudaRuntime()
