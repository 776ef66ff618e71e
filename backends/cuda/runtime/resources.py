"""What a program has of a device: memory, streams, events, modules of code. Each is given back with its object."""

from __future__ import annotations

import ctypes
import weakref

import numpy as np

from backends.cuda.runtime.device import OpenDevice
from backends.cuda.runtime.driver import IN_EACH_RUN_OF_A_GRAPH, NO_TIMING, NON_BLOCKING, NOT_READY
from fusion.errors import FusionError, LimitError


def _give_back(device: OpenDevice, function: str, handle: int) -> None:
    """Give back a handle; in a forked process, and where the context has ended, there is nothing to give."""
    try:
        with device.current():
            device.status(function, handle)
    except FusionError:
        return


def own(holder: object, device: OpenDevice, function: str, handle: int) -> None:
    """Have `function` of the driver give `handle` back with `holder`; at the end of the process the driver does it."""
    weakref.finalize(holder, _give_back, device, function, handle).atexit = False


class DeviceMemory:
    """Memory of a device.

    Attributes:
        address, size: Where it is, and how many bytes.
    """

    def __init__(self, device: OpenDevice, size: int, what: str) -> None:
        """Take it; `what` says for what.

        Raises:
            LimitError: There is none.
        """
        with device.current():
            self.address, self.size = device.allocate(size, what), size
        own(self, device, "cuMemFree_v2", self.address)

    def write(self, device: OpenDevice, offset: int, data: np.ndarray) -> None:
        """Copy contiguous bytes, of which the caller may write others when this returns; they are there before what the
        default stream does later, and no stream reads or writes it yet."""
        if data.nbytes:
            with device.current():
                device.call("cuMemcpyHtoD_v2", self.address + offset, data.ctypes.data, data.nbytes)


class PinnedMemory:
    """Memory of this process that the device copies from and to while the process goes on.

    Attributes:
        array: Its bytes.
    """

    def __init__(self, device: OpenDevice, size: int) -> None:
        """Take it.

        Raises:
            LimitError: There is none.
        """
        with device.current():
            try:
                address = device.make("cuMemHostAlloc", max(size, 1), 0)
            except LimitError as error:
                raise LimitError(
                    f"there are no {size:,} bytes of pinned memory",
                    why=error.why,
                    hint="copies to and from the device go through it: raise the limit of locked memory (ulimit -l)",
                ) from error
        self.array = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(address))
        own(self, device, "cuMemFreeHost", address)


class DeviceStream:
    """A stream of this process's own, which does not wait for the default one.

    Attributes:
        handle: The driver's.
    """

    def __init__(self, device: OpenDevice) -> None:
        with device.current():
            self.handle = device.make("cuStreamCreate", NON_BLOCKING)
        own(self, device, "cuStreamDestroy_v2", self.handle)


def waits_for_default(device: OpenDevice, stream: int) -> bool:
    """Return whether somebody's stream waits for the default one, and that for it; the context is current."""
    flags = ctypes.c_uint()
    device.call("cuStreamGetFlags", stream, ctypes.byref(flags))
    return not flags.value & NON_BLOCKING


class DeviceEvent:
    """A point in what streams do."""

    def __init__(self, device: OpenDevice) -> None:
        self._device = device
        with device.current():
            self.handle = device.make("cuEventCreate", NO_TIMING)
        own(self, device, "cuEventDestroy_v2", self.handle)

    def record(self, stream: int) -> None:
        """Be behind all that `stream` has to do now; the context is current."""
        self._device.call("cuEventRecord", self.handle, stream)

    def wait(self, stream: int) -> None:
        """Have `stream` do nothing further before this; the context is current."""
        self._device.call("cuStreamWaitEvent", stream, self.handle, 0)

    def record_by_each_launch(self, stream: int) -> None:
        """Be behind all that a captured `stream` has to do now, whenever its graph is launched; the context is
        current."""
        self._device.call("cuEventRecordWithFlags", self.handle, stream, IN_EACH_RUN_OF_A_GRAPH)

    def wait_by_each_launch(self, stream: int) -> None:
        """Have what a captured `stream` does further wait for this, as it is recorded when its graph is launched; the
        context is current."""
        self._device.call("cuStreamWaitEvent", stream, self.handle, IN_EACH_RUN_OF_A_GRAPH)

    def is_reached(self) -> bool:
        """Return whether what was recorded is done; the context is current."""
        code = self._device.status("cuEventQuery", self.handle)
        return code != NOT_READY

    def synchronize(self) -> None:
        """Return when what was recorded is done; the context is current.

        Raises:
            ExecutionError: A kernel before it failed.
        """
        self._device.call("cuEventSynchronize", self.handle)


class CodeModule:
    """Machine code, or PTX, on a device."""

    def __init__(self, device: OpenDevice, code: bytes) -> None:
        """Load it; of PTX the driver makes machine code.

        Raises:
            TargetError: It is for another device, or the driver is too old for it.
        """
        self._device = device
        with device.current():
            self._handle = device.make("cuModuleLoadData", code)
        own(self, device, "cuModuleUnload", self._handle)

    def function(self, symbol: str) -> int:
        """Return the handle of a kernel; the context is current."""
        return self._device.make("cuModuleGetFunction", self._handle, symbol.encode())


