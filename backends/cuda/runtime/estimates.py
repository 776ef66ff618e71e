"""What kernels take on devices whose figures are known, by their code alone: no driver, no device and no compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from backends.cuda.devices import DEVICES, CudaDevice
from backends.cuda.libraries.call import LibraryWork
from backends.cuda.runtime.code_file import CodeFile, CodeFunction, CodeLaunch
from backends.cuda.runtime.cubin import CubinResources, read_resources
from backends.device_run import DeviceWork
from backends.kernel import KernelInfo


def estimate_kernels(file: CodeFile, kernels: Mapping[str, KernelInfo]) -> dict[str, tuple[DeviceWork, ...]]:
    """Return for each kernel what it takes on each device of the table of figures.

    Where the file has machine code of a device's architecture, its registers and shared memory are told; the roofline
    is that of any. Kernels of files from before they were counted have no estimate, nor have those that start nothing.
    """
    return {
        name: tuple(_estimate(file, function, kernels[name], device) for device in DEVICES.values())
        for name, function in file.functions.items()
        if name in kernels and _is_counted(function)
    }


def _is_counted(function: CodeFunction) -> bool:
    launches = function.launches
    return function.call is not None or (bool(launches) and all(each.traffic is not None for each in launches))


def _estimate(file: CodeFile, function: CodeFunction, info: KernelInfo, device: CudaDevice) -> DeviceWork:
    if function.call is not None:
        return _estimate_call(function.call.work, info, device)
    launches = function.launches
    traffic = [launch.traffic for launch in launches if launch.traffic is not None]
    l2_bytes = max(info.bytes, sum(each.l2_bytes for each in traffic))
    multiplies = next((each.multiplies for each in traffic if each.multiplies), "")
    blocks = max(launch.blocks for launch in launches)
    share = min(1.0, blocks / device.sms)
    rate = device.gflops(multiplies) * share * (device.mma_share if multiplies else 1.0)
    seconds, bound = _roofline(info, device, rate, l2_bytes, share)
    taken = _resources(file, launches, device)
    return DeviceWork(
        device=device.name,
        arch=device.arch,
        launches=len(launches),
        blocks=blocks,
        threads=max(launch.threads for launch in launches),
        registers=taken.registers,
        shared_bytes=taken.shared_bytes,
        local_bytes=taken.local_bytes,
        occupancy=taken.occupancy,
        l2_bytes=l2_bytes,
        thread_bytes=sum(each.thread_bytes for each in traffic),
        roofline_us=seconds * 1e6,
        bound=bound,
    )


def _estimate_call(work: LibraryWork, info: KernelInfo, device: CudaDevice) -> DeviceWork:
    """Return what is known of a library's call: not which kernel it chooses."""
    seconds, bound = _roofline(info, device, device.gflops(work.multiplied), info.bytes, 1.0)
    return DeviceWork(
        device.name, device.arch, launches=1, blocks=None, threads=None, registers=None, shared_bytes=None,
        local_bytes=None, occupancy=None, l2_bytes=info.bytes, thread_bytes=None, roofline_us=seconds * 1e6,
        bound=bound,
    )  # fmt: skip


def _roofline(
    info: KernelInfo, device: CudaDevice, gflops: float, l2_bytes: int, share: float
) -> tuple[float, str]:
    """Return the seconds of what takes longest, and what that is, where operations are done at a rate, and a share of
    the multiprocessors reads of L2."""
    rates = {
        "compute": (info.flops, gflops),
        "memory": (info.bytes, device.gbs),
        "L2": (l2_bytes, device.l2_gbs * device.sms * share),
    }
    seconds = {bound: work / (rate * 1e9) for bound, (work, rate) in rates.items()}
    bound = max(seconds, key=lambda each: seconds[each])
    return seconds[bound], bound


@dataclass(frozen=True)
class _Taken:
    """The most that the launches of a kernel take, and the least occupancy; None where there is no machine code for the
    device."""

    registers: int | None = None
    shared_bytes: int | None = None
    local_bytes: int | None = None
    occupancy: float | None = None


def _resources(file: CodeFile, launches: Sequence[CodeLaunch], device: CudaDevice) -> _Taken:
    found = [_of_launch(file, launch, device) for launch in launches]
    known = [each for each in found if each is not None]
    if len(known) < len(found):
        return _Taken()
    shared = [launch.shared_bytes + each.shared_bytes for launch, each in zip(launches, known, strict=True)]
    occupancies = [
        device.occupancy(launch.threads, each.registers, size)
        for launch, each, size in zip(launches, known, shared, strict=True)
    ]
    return _Taken(
        max(each.registers for each in known), max(shared), max(each.local_bytes for each in known), min(occupancies)
    )


def _of_launch(file: CodeFile, launch: CodeLaunch, device: CudaDevice) -> CubinResources | None:
    if device.arch not in file.archs:
        return None
    return read_resources(file.cubin(launch.name, device.arch), launch.symbol)
