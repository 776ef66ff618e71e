"""The CUDA devices of this machine: what they are, and one of them in use through its primary context.

The primary context is that of NVIDIA's runtime library too, so that PyTorch, CuPy and this process share memory and
streams with a module.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from ctypes import c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

from backends.cuda.runtime.driver import BROKEN, CAPTURE_RELAXED, SPAWN, Driver, no_device, open_driver
from fusion.errors import DeviceLostError, FusionError, LimitError, TargetError
from fusion.system.forks import Lock

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


def runs_on(arch: str, capability: tuple[int, int], *, is_ptx: bool = False) -> bool:
    """Return whether code for an architecture such as "sm_80" runs on devices of a capability: machine code on those of
    the same major one, PTX on all later ones (CUDA C++ programming guide, "Binary compatibility")."""
    known = capability_of(arch)
    return known <= capability and (is_ptx or known[0] == capability[0])


def fitting_arch(archs: Sequence[str], capability: tuple[int, int]) -> str:
    """Return the last of the architectures, which ascend, whose machine code runs on devices of a capability; ""
    without any."""
    return next((arch for arch in reversed(archs) if runs_on(arch, capability)), "")


def capability_of(arch: str) -> tuple[int, int]:
    """Return (9, 0) for "sm_90".

    Raises:
        TargetError: It is no such name.
    """
    number = arch.removeprefix("sm_")
    if not number.isdecimal():
        raise TargetError(f"{arch!r} is no architecture of CUDA devices", hint='write it as "sm_80"')
    return int(number) // 10, int(number) % 10


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


class OpenDevice:
    """A device that this process uses; `open_device` makes one for each.

    Attributes:
        found: What it is.
    """

    def __init__(self, found: FoundDevice) -> None:
        """Retain its primary context, for as long as the process lives.

        Raises:
            FusionError: The driver gives none.
        """
        self.found = found
        self._driver = open_driver()
        self._process = os.getpid()
        self._failed = ""
        device = self._driver.number("cuDeviceGet", found.ordinal)
        self._context = self._driver.make("cuDevicePrimaryCtxRetain", device)

    @property
    def is_usable(self) -> bool:
        """Whether calls may succeed: not in a process that came out of a fork, nor behind a kernel that failed."""
        return self._process == os.getpid() and not self._failed

    @contextmanager
    def current(self) -> Iterator[None]:
        """Have its context current in the block, in this thread, where nothing that is called ends captures of others.

        Raises:
            DeviceLostError: A kernel failed before, or this process came out of a fork.
        """
        if not self.is_usable:
            raise self._lost()
        mode = ctypes.c_int(CAPTURE_RELAXED)
        self._driver.call("cuCtxPushCurrent_v2", self._context)
        self._driver.status("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
        try:
            yield
        finally:
            self._driver.status("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            self._driver.status("cuCtxPopCurrent_v2", ctypes.byref(c_void_p()))

    def call(self, name: str, *arguments: Any) -> None:
        """Call a function of the driver; see `Driver.call`.

        Raises:
            FusionError: It failed. Where that ends the context, all later calls are a DeviceLostError.
        """
        code = self._driver.status(name, *arguments)
        if code:
            raise self._error(code, name)

    def status(self, name: str, *arguments: Any) -> int:
        """Return what a function returns."""
        return self._driver.status(name, *arguments)

    def make(self, name: str, *arguments: Any) -> int:
        """Return the handle that a function gives through its first parameter."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def allocate(self, size: int, what: str) -> int:
        """Return the address of so many bytes on the device.

        Raises:
            LimitError: It has no room for them; `what` says what they are for.
        """
        address = ctypes.c_uint64()
        try:
            self.call("cuMemAlloc_v2", ctypes.byref(address), max(size, 1))
        except LimitError as error:
            free, total = c_size_t(), c_size_t()
            self.call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
            raise LimitError(
                f"{self.found.label} has no memory for {what}",
                why=f"{size:,} bytes are needed, {free.value:,} of {total.value:,} are free ({self.found.name})",
                hint="use smaller batches, end other programs on the device (nvidia-smi), or free their modules",
            ) from error
        return int(address.value)

    def _error(self, code: int, name: str) -> FusionError:
        error = self._driver.error(code, name)
        if code in BROKEN and not self._failed:
            self._failed = error.why
        return error

    def _lost(self) -> DeviceLostError:
        if self._failed:
            why, hint = f"a kernel failed before: {self._failed}", "start another process: this one's context has ended"
        else:
            why, hint = "this process came out of a fork, which no context of CUDA survives", SPAWN
        return DeviceLostError(f"the device {self.found.label} is lost", why=why, hint=hint)


_open: dict[tuple[Driver, int], OpenDevice] = {}
_opening = Lock()


def open_device(found: FoundDevice) -> OpenDevice:
    """Return the device in use, the same for all that use it.

    Raises:
        FusionError: As of `OpenDevice`.
    """
    with _opening:
        key = open_driver(), found.ordinal
        if key not in _open:
            _open[key] = OpenDevice(found)
        return _open[key]
