"""The CUDA devices of this machine: what they are, and which of them runs code for an architecture."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from ctypes import c_size_t
from dataclasses import dataclass

from backends.cuda.runtime.architectures import capability_of, fitting_arch, runs_on
from backends.cuda.runtime.driver import Driver, no_device, open_driver
from fusion.errors import TargetError

OLDEST = (8, 0)
"""The least capability that kernels are written for: `cp.async`, bfloat16."""
_ATTRIBUTES = {
    "sms": 16, "clock_khz": 13, "memory_khz": 36, "bus_bits": 37, "l2_bytes": 38, "threads": 39, "major": 75,
    "minor": 76, "shared_bytes": 81, "block_shared_bytes": 97, "blocks": 106,
}  # fmt: skip
"""CUdevice_attribute of `cuda.h`, by the names here."""


@dataclass(frozen=True)
class FoundDevice:
    """A CUDA device that the driver lists.

    Attributes:
        ordinal: The driver's number of it, as in "cuda:0".
        memory: Bytes.
        sms: Streaming multiprocessors.
        threads: That one of them holds at once; so for `blocks` and `shared_bytes`.
        block_shared_bytes: Of one block, at most.
        clock_khz: Of its cores; `memory_khz` and `bus_bits` of its memory.
    """

    ordinal: int
    name: str
    memory: int
    major: int
    minor: int
    sms: int
    threads: int
    blocks: int
    shared_bytes: int
    block_shared_bytes: int
    l2_bytes: int
    clock_khz: int
    memory_khz: int
    bus_bits: int

    @property
    def label(self) -> str:
        """What targets and errors call it."""
        return f"cuda:{self.ordinal}"

    @property
    def capability(self) -> tuple[int, int]:
        """What its code is made for."""
        return self.major, self.minor

    @property
    def arch(self) -> str:
        """The same as compilers call it."""
        return f"sm_{self.major}{self.minor}"

    def __str__(self) -> str:
        return f"{self.name}, {self.arch}, {self.memory / 1e9:.1f} GB"


def find_devices() -> tuple[FoundDevice, ...]:
    """Return the devices of this machine.

    Raises:
        TargetError: There is no driver, or no device.
    """
    driver = open_driver()
    found = tuple(_describe(driver, ordinal) for ordinal in range(driver.number("cuDeviceGetCount")))
    if not found:
        raise no_device("the driver lists none")
    return found


def _describe(driver: Driver, ordinal: int) -> FoundDevice:
    device, name = driver.number("cuDeviceGet", ordinal), ctypes.create_string_buffer(256)
    driver.call("cuDeviceGetName", name, len(name), device)
    known = {each: driver.number("cuDeviceGetAttribute", number, device) for each, number in _ATTRIBUTES.items()}
    memory = driver.number("cuDeviceTotalMem_v2", device, kind=c_size_t)
    return FoundDevice(ordinal, name.value.decode(errors="replace"), memory, **known)


def device_of(ordinal: int) -> FoundDevice:
    """Return the device of this number.

    Raises:
        TargetError: There is none.
    """
    devices = find_devices()
    if ordinal >= len(devices):
        listed = ", ".join(f"{each.label} ({each.name})" for each in devices)
        raise TargetError(f"there is no device cuda:{ordinal}", why=f"there are {listed}", hint="name one of these")
    return devices[ordinal]


def driver_version() -> str:
    """Return the version of CUDA that the driver knows, as "12.4".

    Raises:
        TargetError: There is none.
    """
    number = open_driver().number("cuDriverGetVersion")
    return f"{number // 1000}.{number % 1000 // 10}"


def choose_device(archs: Sequence[str], ordinal: int | None = None) -> FoundDevice:
    """Return the device of this ordinal, or the first, that runs code for one of `archs`, or is later than all.

    Raises:
        TargetError: There is none, or it is of another architecture.
    """
    archs = sorted(archs, key=capability_of)
    devices = find_devices() if ordinal is None else (device_of(ordinal),)
    for device in devices:
        if fitting_arch(archs, device.capability) or runs_on(archs[-1], device.capability, is_ptx=True):
            return device
    raise _other(archs, devices)


def _other(archs: Sequence[str], devices: Sequence[FoundDevice]) -> TargetError:
    if all(device.capability < OLDEST for device in devices):
        return too_old(devices)
    return TargetError(
        f"the module has code for {' and '.join(archs)}, and no CUDA device here runs that",
        why=_listed(devices),
        hint=f'compile the model again with target="cuda -arch={devices[0].arch}", or for several: "-arch=sm_80,sm_90"',
    )


def too_old(devices: Sequence[FoundDevice]) -> TargetError:
    """Return the error of devices before `OLDEST`."""
    why = f"kernels are written for sm_{OLDEST[0]}{OLDEST[1]} and later, and {_listed(devices)}"
    hint = 'use target="llvm", which runs on this machine\'s CPU'
    return TargetError("the CUDA device is too old", why=why, hint=hint)


def _listed(devices: Sequence[FoundDevice]) -> str:
    return ", ".join(f"{each.label} is {each.arch} ({each.name})" for each in devices)
