"""A model on a device: its code, weights and memory, and the order of what a run does."""

from __future__ import annotations

import contextlib
import math
import os
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from backends.cuda.runtime.arrays import CapturedRun, DeviceArray, ResultPool
from backends.cuda.runtime.captures import Capture, capture_on, let_go
from backends.cuda.runtime.code_file import CodeFile
from backends.cuda.runtime.device import OpenDevice, open_device
from backends.cuda.runtime.dlpack import ForeignTensor
from backends.cuda.runtime.driver import LEGACY_STREAM
from backends.cuda.runtime.found_devices import FoundDevice
from backends.cuda.runtime.kernels import DeviceGraph, LoadedKernels
from backends.cuda.runtime.layout import ALIGNMENT, MemoryLayout
from backends.cuda.runtime.received import handle_of, receive_tensor
from backends.cuda.runtime.resources import DeviceEvent, DeviceMemory, DeviceStream
from backends.cuda.runtime.staging import Staging
from backends.device_run import DevicePlace, DeviceRun
from fusion.errors import FusionError, InputError
from fusion.signature import TensorSpec
from fusion.system.forks import Lock
from fusion.tensors import byte_view, numpy_dtype, tensor_bytes

_ACCESS = 16
"""Bytes of the widest access of kernels: a tensor of somebody else that does not begin at a multiple is copied."""
_GRAPHS = 8
"""Sets of addresses of which a graph is kept."""


class CudaExecutable:
    """A `DeviceExecutable`. Its memory is planned, and allocated once: runs follow one another on the device, whatever
    threads and streams they are from, and the host prepares one while others run."""

    def __init__(self, found: FoundDevice, code: bytes, run: DeviceRun, weights: Sequence[Any]) -> None:
        """Load the code, and copy the weights to the device.

        Raises:
            FusionError: As of `DeviceRuntime.load`.
            ValueError: The code is damaged.
        """
        let_go()
        self._device, self._run = open_device(found), run
        self._kernels = LoadedKernels(self._device, CodeFile(code), run, ALIGNMENT)
        self._shapes = [(spec.extents, spec.dtype) for spec in run.inputs]
        layout = MemoryLayout(run, self._shapes, weights, self._kernels)
        self._memory = DeviceMemory(self._device, layout.size, "the weights and activations of a module")
        for number, weight in enumerate(weights):
            self._memory.write(self._device, layout.offsets[DevicePlace("weight", number)], byte_view(weight))
        self._at = {place: self._memory.address + offset for place, offset in layout.offsets.items()}
        self._stream = DeviceStream(self._device)
        self._done = DeviceEvent(self._device)
        with self._device.current():
            self._done.record(LEGACY_STREAM)  # behind the weights
        self._results = ResultPool(self._device, self._done)
        self._staging: deque[Staging] = deque(maxlen=os.cpu_count())
        self._graphs: OrderedDict[tuple[int, ...], DeviceGraph | None] = OrderedDict()
        self._held: deque[tuple[DeviceEvent, Sequence[Any], Staging | None]] = deque()
        self._captured: CapturedRun | None = None
        self._lock = Lock()

    def receive(self, value: Any, spec: TensorSpec, stream: Any) -> ForeignTensor | None:
        """See `DeviceExecutable`."""
        return receive_tensor(value, spec, handle_of(stream) or LEGACY_STREAM, self._device.found)

    def run(self, values: Sequence[Any], stream: Any) -> tuple[Any, ...]:
        """See `DeviceExecutable`."""
        ours = handle_of(stream)
        if ours:
            with self._device.current():
                capture = capture_on(self._device, ours)
            if capture is not None:
                return self._run_in_capture(values, ours, capture)
        if any(isinstance(value, ForeignTensor) for value in values):
            return self._run_there(values, ours or LEGACY_STREAM)
        return self._run_from_here(values, ours or self._stream.handle)

    def _run_from_here(self, values: Sequence[np.ndarray], stream: int) -> tuple[np.ndarray, ...]:
        """Return the outputs, copied from the device, for arrays that are copied there."""
        staging = self._take_staging()
        staging.fill(values)
        with self._device.current(), self._waiting_after_errors(stream):
            with self._lock, self._waiting_after_errors(stream):
                self._done.wait(stream)
                for number in range(len(values)):
                    self._copy_in(staging, number, stream)
                self._start(self._at, stream)
                for number, output in enumerate(self._run.outputs):
                    target = staging.output(number)
                    if target.nbytes:
                        source = self._at[output.place]
                        self._device.call("cuMemcpyDtoHAsync_v2", target.ctypes.data, source, target.nbytes, stream)
                staging.ready.record(stream)
                self._done.record(stream)
            staging.ready.synchronize()
        outputs = tuple(staging.output(number).copy() for number in range(len(self._run.outputs)))
        self._staging.append(staging)
        return outputs

    def _take_staging(self) -> Staging:
        with contextlib.suppress(IndexError):
            return self._staging.pop()
        return Staging(self._device, self._run, self._shapes)

    def _run_there(self, values: Sequence[Any], stream: int) -> tuple[DeviceArray, ...]:
        """Return outputs on the device, of which some inputs are there; nobody waits for it."""
        here = {number for number, value in enumerate(values) if isinstance(value, np.ndarray)}
        staging = self._take_staging() if here else None
        at = dict(self._at)
        with self._device.current(), self._lock, self._waiting_after_errors(stream):
            self._let_go()
            ready = DeviceEvent(self._device)
            self._done.wait(stream)
            for number, value in enumerate(values):
                if staging is not None and number in here:
                    staging.fill_one(number, value)
                    self._copy_in(staging, number, stream)
                else:
                    self._place(number, value, at, stream)
            memories = [self._results.take(size, stream) for size in self._result_sizes()]
            self._place_results(memories, at)
            self._start(at, stream)
            self._copy_results(memories, at, stream)
            ready.record(stream)
            self._done.record(stream)
            self._held.append((ready, values, staging))
        return self._arrays(memories, ready, None)

    def _run_in_capture(self, values: Sequence[Any], stream: int, capture: Capture) -> tuple[DeviceArray, ...]:
        """Return outputs on the device, which each launch of the caller's graph writes. That waits for the run before
        it, and has the next one wait, as runs do that are no graph's; it holds all that its kernels use."""
        for value, spec in zip(values, self._run.inputs, strict=True):
            if isinstance(value, np.ndarray):
                raise InputError(
                    f"input {spec.name!r} is not on the device",
                    where=f"input {spec.name!r}",
                    why="its stream is captured, and a graph reads in each launch what is on the device",
                    hint=f'copy it to a tensor on "{self._device.found.label}" before the capture, and pass that',
                )
        at = dict(self._at)
        with self._device.current(), self._lock:
            let_go()
            memories = [self._results.take_new(size) for size in self._result_sizes()]
            ready, run = DeviceEvent(self._device), CapturedRun(capture.identity, DeviceEvent(self._device))
            capture.keep((self, memories, ready))
            if self._captured is not None and self._captured.identity == capture.identity:
                self._captured.end.wait(stream)
            self._done.wait_by_each_launch(stream)
            for number, value in enumerate(values):
                self._place(number, value, at, stream)
            self._place_results(memories, at)
            self._kernels.launch(self._kernels.addresses(at), stream)
            self._copy_results(memories, at, stream)
            ready.record_by_each_launch(stream)
            self._done.record_by_each_launch(stream)
            run.end.record(stream)
            self._captured = run
        return self._arrays(memories, ready, run)

    def _copy_in(self, staging: Staging, number: int, stream: int) -> None:
        source = staging.input(number)
        if source.nbytes:
            target = self._at[DevicePlace("input", number)]
            self._device.call("cuMemcpyHtoDAsync_v2", target, source.ctypes.data, source.nbytes, stream)

    def _place(self, number: int, tensor: ForeignTensor, at: dict[DevicePlace, int], stream: int) -> None:
        """Have kernels read a tensor where it is, or a copy of one that does not begin where their accesses do."""
        place = DevicePlace("input", number)
        if tensor.address % _ACCESS == 0:
            at[place] = tensor.address
            return
        size = math.prod(tensor.shape) * tensor.dtype.itemsize
        if size:
            self._device.call("cuMemcpyDtoDAsync_v2", at[place], tensor.address, size, stream)

    def _result_sizes(self) -> Iterator[int]:
        """Yield the bytes of each output."""
        for output in self._run.outputs:
            size = tensor_bytes(output.shape, output.dtype)
            yield max(size, self._run.results[output.place.index]) if output.is_own else size

    def _place_results(self, memories: Sequence[DeviceMemory], at: dict[DevicePlace, int]) -> None:
        """Have kernels write the outputs that are their own where they go."""
        for memory, output in zip(memories, self._run.outputs, strict=True):
            if output.is_own:
                at[output.place] = memory.address

    def _copy_results(self, memories: Sequence[DeviceMemory], at: Mapping[DevicePlace, int], stream: int) -> None:
        """Copy the others there, behind the kernels."""
        for memory, output in zip(memories, self._run.outputs, strict=True):
            size = tensor_bytes(output.shape, output.dtype)
            if not output.is_own and size:
                self._device.call("cuMemcpyDtoDAsync_v2", memory.address, at[output.place], size, stream)

    def _arrays(
        self, memories: Sequence[DeviceMemory], ready: DeviceEvent, captured: CapturedRun | None
    ) -> tuple[DeviceArray, ...]:
        return tuple(
            DeviceArray(memory, self._results, ready, output.shape, dtype=numpy_dtype(output.dtype), captured=captured)
            for memory, output in zip(memories, self._run.outputs, strict=True)
        )

    def _start(self, at: Mapping[DevicePlace, int], stream: int) -> None:
        """Start the kernels: one by one where their addresses are new, for the driver may still have to load them; as a
        graph, which is made once, where they were met before."""
        addresses = self._kernels.addresses(at)
        key = tuple(addresses)
        if key not in self._graphs:
            self._graphs[key] = None
            self._kernels.launch(addresses, stream)
        else:
            graph = self._graphs[key] or self._kernels.graph(addresses)
            self._graphs[key] = graph
            graph.launch(stream)
        self._graphs.move_to_end(key)
        if len(self._graphs) > _GRAPHS:
            self._forget_graph()

    def _forget_graph(self) -> None:
        """Drop the graph that was not used for the longest time, when it does not run any more."""
        _, graph = self._graphs.popitem(last=False)
        if graph is not None:
            self._done.synchronize()

    def _let_go(self) -> None:
        """Give up the inputs of runs that are done: their owners may write to them, or free them, from now on."""
        let_go()
        while self._held and self._held[0][0].is_reached():
            _, _, staging = self._held.popleft()
            if staging is not None:
                self._staging.append(staging)

    @contextlib.contextmanager
    def _waiting_after_errors(self, stream: int) -> Iterator[None]:
        """Where the block raises, also by an interrupt, wait for what it has begun, which uses memory of this call and,
        under the lock, that of all calls."""
        try:
            yield
        except BaseException:
            self._device.status("cuStreamSynchronize", stream)
            raise

    def __del__(self) -> None:
        # Its memory is freed next, and so is what it holds of others.
        device: OpenDevice | None = self.__dict__.get("_device")
        if device is not None and "_lock" in self.__dict__ and device.is_usable:
            with contextlib.suppress(FusionError), device.current():
                self._done.synchronize()
