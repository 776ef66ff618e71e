"""A CUDA device in use, through its primary context.

The primary context is that of NVIDIA's runtime library too, so that PyTorch, CuPy and this process share memory and
streams with a module.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import c_size_t, c_void_p
from typing import Any

from backends.cuda.runtime.driver import BROKEN, CAPTURE_RELAXED, SPAWN, Driver, open_driver
from backends.cuda.runtime.found_devices import FoundDevice
from fusion.errors import DeviceLostError, FusionError, LimitError
from fusion.system.forks import Lock


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
