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
from backends.cuda.runtime.device import FoundDevice, OpenDevice, open_device
from backends.cuda.runtime.dlpack import CUDA, CUDA_MANAGED, ForeignTensor
from backends.cuda.runtime.driver import LEGACY_STREAM
from backends.cuda.runtime.kernels import DeviceGraph, LoadedKernels, aligned
from backends.cuda.runtime.resources import DeviceEvent, DeviceMemory, DeviceStream, PinnedMemory
from backends.device_run import DevicePlace, DeviceRun
from fusion.errors import FusionError, InputError, OptionError
from fusion.forks import Lock
from fusion.signature import TensorSpec
from fusion.tensors import byte_view, numpy_dtype, tensor_bytes

ALIGNMENT = 256
"""Bytes between the beginnings of tensors, as the driver itself allocates."""
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
        layout = _Layout(run, self._shapes, weights, self._kernels)
        self._memory = DeviceMemory(self._device, layout.size, "the weights and activations of a module")
        for number, weight in enumerate(weights):
            self._memory.write(self._device, layout.offsets[DevicePlace("weight", number)], byte_view(weight))
        self._at = {place: self._memory.address + offset for place, offset in layout.offsets.items()}
        self._stream = DeviceStream(self._device)
        self._done = DeviceEvent(self._device)
        with self._device.current():
            self._done.record(LEGACY_STREAM)  # behind the weights
        self._results = ResultPool(self._device, self._done)
        self._staging: deque[_Staging] = deque(maxlen=os.cpu_count())
        self._graphs: OrderedDict[tuple[int, ...], DeviceGraph | None] = OrderedDict()
        self._held: deque[tuple[DeviceEvent, Sequence[Any], _Staging | None]] = deque()
        self._captured: CapturedRun | None = None
        self._lock = Lock()

    def receive(self, value: Any, spec: TensorSpec, stream: Any) -> ForeignTensor | None:
        """See `DeviceExecutable`."""
        if isinstance(value, np.ndarray) or not hasattr(value, "__dlpack_device__"):
            return None
        found = self._device.found
        try:
            kind, ordinal = (int(number) for number in value.__dlpack_device__())
        except Exception as error:  # whatever the other library raises: torch has tensors without a device
            raise self._unreadable(value, spec, error) from error
        if kind not in (CUDA, CUDA_MANAGED):
            return None
        if ordinal != found.ordinal:
            raise InputError(
                f"input {spec.name!r} is on another device",
                where=f"input {spec.name!r}",
                why=f"it is on cuda:{ordinal}, and the module runs on {found.label}",
                hint=f'move it there (torch: value.to("{found.label}")), or pass a NumPy array',
            )
        try:
            tensor = ForeignTensor(value.__dlpack__(stream=_handle_of(stream) or LEGACY_STREAM))
        except FusionError:
            raise
        except Exception as error:  # whatever the other library raises in __dlpack__
            raise self._unreadable(value, spec, error) from error
        if not tensor.is_contiguous:
            raise InputError(
                f"input {spec.name!r} is not contiguous",
                where=f"input {spec.name!r}",
                why="kernels read tensors on the device in place",
                hint="pass value.contiguous()",
            )
        return tensor

    def _unreadable(self, value: Any, spec: TensorSpec, error: Exception) -> InputError:
        return InputError(
            f"input {spec.name!r} cannot be read as an array on {self._device.found.label}",
            where=f"input {spec.name!r}",
            why=f"{type(value).__module__}.{type(value).__name__}: {error}",
            hint="pass value.detach()" if "detach()" in str(error) else "give a dense tensor of numbers",
        )

    def run(self, values: Sequence[Any], stream: Any) -> tuple[Any, ...]:
        """See `DeviceExecutable`."""
        ours = _handle_of(stream)
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

    def _take_staging(self) -> _Staging:
        with contextlib.suppress(IndexError):
            return self._staging.pop()
        return _Staging(self._device, self._run, self._shapes)

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

    def _copy_in(self, staging: _Staging, number: int, stream: int) -> None:
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


class _Staging:
    """Pinned memory that the arrays of one call go through, on their way to the device and back.

    Attributes:
        ready: Behind the copies of a run.
    """

    def __init__(self, device: OpenDevice, run: DeviceRun, inputs: Sequence[tuple[tuple[int, ...], str]]) -> None:
        outputs = [(output.shape, output.dtype) for output in run.outputs]
        sizes = [tensor_bytes(shape, dtype) for shape, dtype in (*inputs, *outputs)]
        ends = np.cumsum([aligned(size, ALIGNMENT) for size in sizes]).tolist()
        self._pinned = PinnedMemory(device, ends[-1] if ends else 0)
        starts = [0, *ends][: len(ends)]
        self._arrays = [
            self._pinned.array[start : start + size].view(numpy_dtype(dtype)).reshape(shape)
            for start, size, (shape, dtype) in zip(starts, sizes, (*inputs, *outputs), strict=True)
        ]
        self._inputs = len(inputs)
        self.ready = DeviceEvent(device)

    def fill(self, values: Sequence[np.ndarray]) -> None:
        """Take the arrays of a call."""
        for number, value in enumerate(values):
            self.fill_one(number, value)

    def fill_one(self, number: int, value: np.ndarray) -> None:
        """Take one of them."""
        np.copyto(self._arrays[number], value)

    def input(self, number: int) -> np.ndarray:
        """Return an input here."""
        return self._arrays[number]

    def output(self, number: int) -> np.ndarray:
        """Return the place of an output here."""
        return self._arrays[self._inputs + number]


class _Layout:
    """Where everything lies in the memory of a module, which is allocated at once.

    Attributes:
        offsets: Of each place, in bytes.
        size: Of all.
    """

    def __init__(
        self,
        run: DeviceRun,
        inputs: Sequence[tuple[tuple[int, ...], str]],
        weights: Sequence[Any],
        kernels: LoadedKernels,
    ) -> None:
        sizes = {
            **{DevicePlace("weight", number): byte_view(weight).nbytes for number, weight in enumerate(weights)},
            **{DevicePlace("storage", number): size for number, size in enumerate(run.storages)},
            **{DevicePlace("result", number): size for number, size in enumerate(run.results)},
            **{DevicePlace("input", number): tensor_bytes(*known) for number, known in enumerate(inputs)},
        }
        self.offsets, self.size = dict[DevicePlace, int](), 0
        for place, size in sizes.items():
            self.offsets[place] = self.size
            self.size += aligned(size, ALIGNMENT)
        self.offsets |= {place: self.size + held.start for place, held in kernels.workspaces.items()}
        self.size += kernels.workspace_bytes


def _handle_of(stream: Any) -> int:
    """Return the driver's handle of a caller's stream; 0 for None.

    Raises:
        OptionError: It is none.
    """
    if stream is None:
        return 0
    if hasattr(stream, "__cuda_stream__"):
        stream = stream.__cuda_stream__()[1] or LEGACY_STREAM
    elif hasattr(stream, "cuda_stream"):
        stream = stream.cuda_stream or LEGACY_STREAM
    if isinstance(stream, int) and not isinstance(stream, bool) and stream > 0:
        return stream
    raise OptionError(
        f"stream={stream!r} is no stream of CUDA",
        why="it is a handle, or an object with __cuda_stream__, as those of PyTorch and CuPy",
        hint="pass torch.cuda.current_stream(), 1 for the default stream, or leave it out",
    )
