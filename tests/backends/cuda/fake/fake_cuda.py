"""The driver that tests run modules on: `fake_cuda.cc`, as a library, and code that it takes."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from backends.cuda.codegen.generate import CudaKernel
from backends.cuda.codegen.nvrtc import Assembled
from backends.cuda.runtime import driver
from backends.cuda.runtime.dlpack import ForeignTensor, export
from tests.backends.cuda.emulator.emulate import COMPILER, WHY_NOT, kernel_library

__all__ = ["WHY_NOT", "FakeCapture", "FakeCuda", "FakeReader", "FakeTensor", "fake_assemble", "fake_library"]
SOURCE = Path(__file__).with_name("fake_cuda.cc")
_DYNAMIC = 163 << 10
_CAPTURE_GLOBAL = 0


@functools.cache
def _folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="fake_cuda")


@functools.cache
def fake_library() -> Path:
    """Return the library, under the name that drivers have."""
    made = Path(_folder().name) / driver.LIBRARY
    compile_fake(made)
    return made


def compile_fake(made: Path, *options: str) -> None:
    """Compile it."""
    assert COMPILER is not None
    command = [COMPILER, "-std=c++17", "-O0", "-shared", "-fPIC", *options, str(SOURCE), "-o", str(made), "-ldl"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def fake_assemble(source: str, arch: str, name: str = "") -> Assembled:
    """Return what the fake driver takes for machine code of CUDA C, and for PTX: where the emulator's code of it is."""
    found = re.search(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)', source)
    assert found is not None
    symbol, parameters = found.groups()
    library, emulator = kernel_library(CudaKernel(source, symbol, (), 1, 1, _DYNAMIC))
    text = source[source.index('extern "C" __global__') :]
    is_cut = int("extern __shared__" in text and text.count("__shared__") == 1)
    rest = f"{arch.removeprefix('sm_')}\n{emulator}\n{library}\n{symbol}\n{parameters.count(',') + 1}\n{is_cut}\n"
    return Assembled(f"FAKE CUBIN\n{rest}".encode(), f"FAKE PTX\n{rest}".encode())


class FakeCuda:
    """The fake driver of this process: what devices it has, and what it was asked."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(str(fake_library()))
        self._library.fake_reset.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_size_t, ctypes.c_int]
        self._library.fake_used.restype = ctypes.c_size_t
        self._library.fake_message.restype = ctypes.c_char_p

    def reset(self, devices: int = 1, capability: int = 80, memory: int = 1 << 30, shared: int = 163 << 10) -> None:
        """Have so many devices, of which nobody knows yet."""
        self._library.fake_reset(devices, capability, memory, shared)
        driver._drivers.clear()

    def set_capability(self, ordinal: int, capability: int) -> None:
        """Have another kind of device."""
        self._library.fake_capability(ordinal, capability)

    def mix_streams(self) -> None:
        """Have streams that nothing orders take turns."""
        self._library.fake_mix(1)

    def fail(self, name: str, error: int, after: int = 0) -> None:
        """Have a function fail, once, after so many calls."""
        self._library.fake_fail(name.encode(), error, after)

    def calls(self, name: str) -> int:
        """Return how often a function was called."""
        return int(self._library.fake_calls(name.encode()))

    def used(self, ordinal: int = 0) -> int:
        """Return the bytes that are allocated on a device."""
        return int(self._library.fake_used(ordinal))

    @property
    def message(self) -> str:
        """What ended a context."""
        return str(self._library.fake_message().decode())


class FakeReader:
    """What another library does with a tensor: it copies it on a stream, later than now."""

    def __init__(self, value: Any, stream: int) -> None:
        self._driver, self._stream = driver.open_driver(), stream
        self._context = self._driver.make("cuDevicePrimaryCtxRetain", value.__dlpack_device__()[1])
        tensor = ForeignTensor(value.__dlpack__(stream=stream))
        self._array = np.empty(tensor.shape, tensor.dtype)
        with _current(self._driver, self._context):
            self._pinned = self._driver.make("cuMemHostAlloc", self._array.nbytes, 0)
            self._driver.call("cuMemcpyDtoHAsync_v2", self._pinned, tensor.address, self._array.nbytes, stream)

    def wait(self) -> np.ndarray:
        """Return what it read, waiting for its own stream only."""
        with _current(self._driver, self._context):
            self._driver.call("cuStreamSynchronize", self._stream)
        ctypes.memmove(self._array.ctypes.data, self._pinned, self._array.nbytes)
        return self._array


@contextlib.contextmanager
def _current(opened: driver.Driver, context: int) -> Iterator[None]:
    opened.call("cuCtxPushCurrent_v2", context)
    try:
        yield
    finally:
        opened.call("cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))


class FakeCapture:
    """A graph that somebody else captures on a stream, as PyTorch does: in the mode in which unsafe calls end it.

    Attributes:
        stream: What is captured between `begin` and `end`.
    """

    def __init__(self) -> None:
        self._driver = driver.open_driver()
        self._context = self._driver.make("cuDevicePrimaryCtxRetain", 0)
        self._exec = 0
        with _current(self._driver, self._context):
            self.stream = self._driver.make("cuStreamCreate", 1)

    def begin(self) -> None:
        """Capture the stream from now on."""
        with _current(self._driver, self._context):
            self._driver.call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_GLOBAL)

    def end(self) -> None:
        """Make the graph of what the stream was asked for."""
        with _current(self._driver, self._context):
            graph = ctypes.c_void_p()
            self._driver.call("cuStreamEndCapture", self.stream, ctypes.byref(graph))
            self._exec = self._driver.make("cuGraphInstantiateWithFlags", graph, 0)
            self._driver.call("cuGraphDestroy", graph)

    def order(self, first: int, then: int) -> None:
        """Have a stream go on behind what another has to do now; so one is captured with another."""
        with _current(self._driver, self._context):
            event = self._driver.make("cuEventCreate", 2)
            self._driver.call("cuEventRecord", event, first)
            self._driver.call("cuStreamWaitEvent", then, event, 0)

    def launch(self) -> None:
        """Start it, on its stream."""
        with _current(self._driver, self._context):
            self._driver.call("cuGraphLaunch", self._exec, self.stream)

    def destroy(self) -> None:
        """Wait for it, and have it no more."""
        with _current(self._driver, self._context):
            self._driver.call("cuStreamSynchronize", self.stream)
            self._driver.call("cuGraphExecDestroy", self._exec)

    def write(self, tensor: FakeTensor, array: np.ndarray) -> None:
        """Have the stream write other numbers to a tensor, later than now."""
        mode = ctypes.c_int(driver.CAPTURE_RELAXED)
        with _current(self._driver, self._context):
            self._driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            pinned = self._driver.make("cuMemHostAlloc", array.nbytes, 0)
            self._driver.call("cuThreadExchangeStreamCaptureMode", ctypes.byref(mode))
            ctypes.memmove(pinned, array.ctypes.data, array.nbytes)
            self._driver.call("cuMemcpyHtoDAsync_v2", tensor.address, pinned, array.nbytes, self.stream)


class FakeTensor:
    """A tensor as libraries have it that compute on a device: written on a stream of its own, or on `stream`, later
    than now, and freed with the last that holds it, whatever streams have to do with it still."""

    def __init__(self, array: np.ndarray, ordinal: int = 0, offset: int = 0, stream: int = 0) -> None:
        self.shape, self.dtype, self.ordinal = array.shape, array.dtype, ordinal
        opened = driver.open_driver()
        self._driver, self._context = opened, opened.make("cuDevicePrimaryCtxRetain", ordinal)
        with _current(opened, self._context):
            address = ctypes.c_uint64()
            opened.call("cuMemAlloc_v2", ctypes.byref(address), max(array.nbytes + offset, 1))
            self._begin, self.address = address.value, address.value + offset
            self.stream = stream or opened.make("cuStreamCreate", 1)
            self._event = opened.make("cuEventCreate", 2)
            pinned = opened.make("cuMemHostAlloc", max(array.nbytes, 1), 0)
            ctypes.memmove(pinned, array.ctypes.data, array.nbytes)
            opened.call("cuMemcpyHtoDAsync_v2", self.address, pinned, array.nbytes, self.stream)
            opened.call("cuEventRecord", self._event, self.stream)
        self.asked: list[int | None] = []

    def __dlpack_device__(self) -> tuple[int, int]:
        return 2, self.ordinal

    def __dlpack__(self, *, stream: int | None = None) -> object:
        self.asked.append(stream)
        if stream != self.stream:
            with _current(self._driver, self._context):
                self._driver.call("cuStreamWaitEvent", stream or 1, self._event, 0)
        return export(self, self.address, self.ordinal, self.shape, self.dtype, versioned=len(self.asked) % 2 == 0)

    def __del__(self) -> None:
        with contextlib.suppress(Exception), _current(self._driver, self._context):
            self._driver.call("cuMemFree_v2", self._begin)
