"""Results that stay on a device."""

from __future__ import annotations

import contextlib
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from backends.cuda.runtime.captures import Capture, capture_on
from backends.cuda.runtime.device import OpenDevice
from backends.cuda.runtime.dlpack import CUDA, export
from backends.cuda.runtime.driver import LEGACY_STREAM
from backends.cuda.runtime.resources import DeviceEvent, DeviceMemory, waits_for_default
from fusion.errors import FusionError, InputError, LimitError
from fusion.system.forks import Lock

_KEPT = 8
"""Blocks of one size that are kept for later results."""
_CPU = 1
_Block = tuple[DeviceMemory, list[DeviceEvent]]
"""Memory, and what is behind those who read it last."""


class ResultPool:
    """Memory for results. What a result no longer needs, later ones of its size get: in a loop, calls meet the same
    addresses again, and so graphs that are there."""

    def __init__(self, device: OpenDevice, done: DeviceEvent) -> None:
        """`done` is behind the last run that writes to any of it."""
        self.device = device
        self._done = done
        self._idle: dict[int, list[_Block]] = defaultdict(list)
        # The garbage collector may run while this thread has it, and give back a result.
        self._lock = Lock()

    def take(self, size: int, stream: int) -> DeviceMemory:
        """Return so many bytes, which `stream` may write; the context is current.

        Raises:
            LimitError: There are none.
        """
        with self._lock:
            found = self._idle[size].pop() if self._idle[size] else None
        if found is not None:
            memory, read = found
            for event in read:
                event.wait(stream)
            return memory
        return self.take_new(size)

    def take_new(self, size: int) -> DeviceMemory:
        """Return so many bytes that nobody had.

        Raises:
            LimitError: There are none.
        """
        try:
            return DeviceMemory(self.device, size, "a result")
        except LimitError:
            self.shrink()
            return DeviceMemory(self.device, size, "a result")

    def give(self, memory: DeviceMemory, readers: Collection[int]) -> None:
        """Take back the memory of a result that is gone.

        Args:
            readers: Streams that may still read it.
        """
        read, surplus = list[DeviceEvent](), list[_Block]()
        if readers:
            try:
                with self.device.current():
                    for stream in readers:
                        capture = capture_on(self.device, stream)
                        if capture is not None:  # nothing there tells when it has read this, but the end of the graph
                            capture.keep(memory)
                            return
                        read.append(DeviceEvent(self.device))
                        read[-1].record(stream)
            except FusionError:  # the context has ended, or this process came out of a fork
                return
        with self._lock:
            blocks = self._idle[memory.size]
            blocks.append((memory, read))
            while len(blocks) > _KEPT:  # one step each, as a collection between two gives back others
                surplus.append(blocks.pop(0))
        self._wait(surplus)

    def shrink(self) -> None:
        """Free what is idle."""
        with self._lock:
            idle, self._idle = self._idle, defaultdict(list)
        self._wait([each for blocks in idle.values() for each in blocks])

    def _wait(self, blocks: Sequence[_Block]) -> None:
        """Return when nobody uses blocks any more, which are freed then."""
        if not blocks:
            return
        with contextlib.suppress(FusionError), self.device.current():
            for event in (self._done, *(event for _, read in blocks for event in read)):
                event.synchronize()


@dataclass(frozen=True)
class CapturedRun:
    """A run in a capture of a caller's.

    Attributes:
        identity: Of the capture.
        end: Behind the run, for who is captured there too.
    """

    identity: int
    end: DeviceEvent


class DeviceArray:
    """A result of a module, on its device. It speaks DLPack: `torch.from_dlpack(array)`, `cupy.from_dlpack(array)`.

    Kernels may still write it; who takes it by DLPack waits for them on the stream it names, without holding up this
    process. `numpy()` waits and copies. One that was made in a capture of a stream is what the last launch of the
    graph left; its memory is nobody else's, and is there as long as this or the graph.

    Attributes:
        shape: Its extents; it is dense.
        dtype: NumPy's.
    """

    def __init__(
        self,
        memory: DeviceMemory,
        pool: ResultPool,
        ready: DeviceEvent,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        captured: CapturedRun | None = None,
    ) -> None:
        self.shape, self.dtype = shape, dtype
        self._memory, self._pool, self._ready, self._captured = memory, pool, ready, captured
        self._readers: set[int] = set()
        self._is_in_graph = captured is not None

    @property
    def ndim(self) -> int:
        """How many axes it has."""
        return len(self.shape)

    @property
    def device(self) -> str:
        """Where it is, such as "cuda:0"."""
        return self._pool.device.found.label

    def numpy(self) -> np.ndarray:
        """Return a copy of it.

        Raises:
            ExecutionError: A kernel of the run failed.
        """
        copy, device = np.empty(self.shape, self.dtype), self._pool.device
        with device.current():
            self._ready.synchronize()
            if copy.nbytes:
                device.call("cuMemcpyDtoH_v2", copy.ctypes.data, self._memory.address, copy.nbytes)
        return copy

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's numbers of the device."""
        return CUDA, self._pool.device.found.ordinal

    def __dlpack__(
        self,
        *,
        stream: int | None = None,
        max_version: tuple[int, int] | None = None,
        dl_device: tuple[int, int] | None = None,
        copy: bool | None = None,
    ) -> Any:
        """Return a capsule of it. Its memory lives as long as what is made of that, and is written again when the
        default stream and `stream` have done what they have to do by then; who reads on another one keeps it until it
        is read.

        Args:
            stream: On which the consumer will read it: None or 1 for the default one, 2 for that of the thread, or a
                handle; -1 where the consumer waits itself. One that does not wait for the default one has to last
                longer than what is made of the capsule.
            max_version: Of DLPack, that the consumer reads.
            dl_device: Where it is wanted: here, or on the CPU, (1, 0), as a copy.
            copy: Whether a copy is wanted.

        Raises:
            BufferError: It is wanted elsewhere, or as a copy on the device.
            InputError: `stream` is none.
        """
        kind, ordinal = dl_device or self.__dlpack_device__()
        if kind == _CPU and copy is not False:
            return self.numpy().__dlpack__()
        if copy or (kind, ordinal) != self.__dlpack_device__():
            raise BufferError(f"a tensor on {self.device} is given as it is, or as a copy on the CPU")
        if stream is not None and (not isinstance(stream, int) or stream < -1 or stream == 0):
            why, hint = "the handle 0 may mean two streams", "pass 1 for the default one"
            raise InputError(f"{stream!r} is no stream of CUDA", why=why, hint=hint)
        self._readers.add(LEGACY_STREAM)
        if stream != -1:
            reader, device = LEGACY_STREAM if stream is None else stream, self._pool.device
            with device.current():
                capture = capture_on(device, reader)
                if capture is not None:
                    self._read_in(capture, reader)
                else:
                    self._ready.wait(reader)
                    if not waits_for_default(device, reader):
                        self._readers.add(reader)
        versioned = max_version is not None and tuple(max_version) >= (1, 0)
        return export(self, self._memory.address, ordinal, self.shape, self.dtype, versioned=versioned)

    def _read_in(self, capture: Capture, reader: int) -> None:
        """Have a captured stream wait for it, and the graph keep it, which reads it in each launch."""
        if self._captured is not None and self._captured.identity == capture.identity:
            self._captured.end.wait(reader)
            return
        capture.keep((self._memory, self._ready))
        self._is_in_graph = True
        self._ready.wait_by_each_launch(reader)

    def __repr__(self) -> str:
        """Return dtype, shape and device."""
        return f"<DeviceArray {self.dtype}{list(self.shape)} on {self.device}>"

    def __del__(self) -> None:
        # Half made, it has none of these.
        pool, memory = self.__dict__.get("_pool"), self.__dict__.get("_memory")
        if pool is not None and memory is not None and not self._is_in_graph:
            pool.give(memory, self._readers)


