"""The kernels of a model on a device, and a run of them: one launch after another, or all at once as a graph."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping, Sequence
from ctypes import c_uint64, c_void_p
from dataclasses import dataclass
from typing import Any

from backends.cuda.devices import STATIC_SHARED
from backends.cuda.libraries.call import DeviceLibraryCall
from backends.cuda.libraries.loaded import LoadedWork, load_work
from backends.cuda.runtime.code_file import CodeFile, CodeLaunch
from backends.cuda.runtime.device import OpenDevice
from backends.cuda.runtime.driver import CAPTURE_RELAXED, MAX_DYNAMIC_SHARED_BYTES, KernelNode
from backends.cuda.runtime.resources import CodeModule, DeviceStream, own
from backends.device_run import DevicePlace, DeviceRun, KernelStart
from fusion.errors import TargetError

WORKSPACE = "workspace"
"""The kind of the places of what kernels of one PrimFunc hand each other."""


@dataclass(frozen=True)
class LoadedLaunch:
    """A kernel on the device, with the positions of its pointers in the table of a run's addresses."""

    function: int
    blocks: int
    threads: int
    shared_bytes: int
    pointers: tuple[int, ...]

    def start(self, device: OpenDevice, table: _Table, stream: int) -> None:
        """Start it on a stream; the context is current."""
        device.call(
            "cuLaunchKernel", self.function, self.blocks, 1, 1, self.threads, 1, 1, self.shared_bytes, stream,
            table.pointers(self.pointers), None,
        )  # fmt: skip

    def add_node(self, device: OpenDevice, table: _Table, graph: int, before: int) -> int:
        """Return its node in a graph, behind the node `before`; 0 for none."""
        node, pointers = c_void_p(), table.pointers(self.pointers)
        made = KernelNode(
            self.function, self.blocks, 1, 1, self.threads, 1, 1, self.shared_bytes, ctypes.addressof(pointers)
        )
        device.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, *_behind(before), ctypes.byref(made))
        return node.value or 0


@dataclass(frozen=True)
class LoadedCall:
    """Work of a library, with the positions of its tensors, and of what it works in, in that table."""

    work: LoadedWork
    tensors: tuple[int, ...]
    workspace: int

    def start(self, device: OpenDevice, table: _Table, stream: int) -> None:
        """Start it on a stream; the context is current."""
        self.work.run([table.values[each] for each in self.tensors], table.values[self.workspace], stream)

    def add_node(self, device: OpenDevice, table: _Table, graph: int, before: int) -> int:
        """Return its node in a graph, behind the node `before`: what it does on a stream, captured alone."""
        node, captured, stream = c_void_p(), c_void_p(), DeviceStream(device)
        device.call("cuStreamBeginCapture_v2", stream.handle, CAPTURE_RELAXED)
        try:
            self.start(device, table, stream.handle)
        finally:
            device.call("cuStreamEndCapture", stream.handle, ctypes.byref(captured))
        try:
            device.call("cuGraphAddChildGraphNode", ctypes.byref(node), graph, *_behind(before), captured)
        finally:
            device.status("cuGraphDestroy", captured)
        return node.value or 0


def _behind(node: int) -> tuple[Any, int]:
    """Return what functions of graphs take for the nodes that one waits for: this one, if it is any."""
    return (ctypes.pointer(c_void_p(node)), 1) if node else (None, 0)


class LoadedKernels:
    """The launches of a run.

    Attributes:
        workspace_bytes: Of the memory that the kernels of one PrimFunc hand each other; all PrimFuncs share it.
        places: Of the table of addresses: each place that a kernel reads or writes, and its offset there.
    """

    def __init__(self, device: OpenDevice, file: CodeFile, run: DeviceRun, alignment: int) -> None:
        """Load the code.

        Raises:
            TargetError: It does not run on the device.
            ValueError: The file has another plan than `run`.
        """
        self._device = device
        self._modules: list[CodeModule] = []
        self._handles: dict[str, int] = {}
        self._works: dict[str, LoadedWork] = {}
        self._table: dict[tuple[DevicePlace, int], int] = {}
        self.workspace_bytes = 0
        launches = list[LoadedLaunch | LoadedCall]()
        for start in run.starts:
            launches += self._start(file, start, alignment)
        self._launches = tuple(launches)

    @property
    def places(self) -> tuple[tuple[DevicePlace, int], ...]:
        """See the class."""
        return tuple(self._table)

    def _start(self, file: CodeFile, start: KernelStart, alignment: int) -> list[LoadedLaunch | LoadedCall]:
        function = file.functions.get(start.kernel)
        if function is None or function.parameters != len(start.tensors):
            raise ValueError(f"there is no kernel {start.kernel!r} of {len(start.tensors)} tensors in its code")
        places, offset = [(place, 0) for place in start.tensors], 0
        work = None if function.call is None else self._work(start.kernel, function.call)
        for size in function.workspaces if work is None else (work.workspace_bytes,):
            places.append((DevicePlace(WORKSPACE, 0), offset))
            offset += aligned(size, alignment)
        self.workspace_bytes = max(self.workspace_bytes, offset)
        positions = [self._table.setdefault(place, len(self._table)) for place in places]
        if work is not None and function.call is not None:
            *tensors, workspace = positions
            return [LoadedCall(work, tuple(tensors[each] for each in function.call.arguments), workspace)]
        return [
            LoadedLaunch(
                self._function(file, each), each.blocks, each.threads, each.shared_bytes,
                tuple(positions[argument] for argument in each.arguments),
            )
            for each in function.launches
        ]  # fmt: skip

    def _work(self, kernel: str, call: DeviceLibraryCall) -> LoadedWork:
        if kernel not in self._works:
            self._works[kernel] = load_work(self._device, call.work)
        return self._works[kernel]

    def _function(self, file: CodeFile, launch: CodeLaunch) -> int:
        if launch.name in self._handles:
            return self._handles[launch.name]
        found = self._device.found
        if launch.shared_bytes > found.block_shared_bytes:
            raise TargetError(
                f"a kernel needs {launch.shared_bytes:,} bytes of shared memory, and {found.label} has"
                f" {found.block_shared_bytes:,} for a block",
                why=f"the module is for {' and '.join(file.archs)}, and the device is a {found.name} ({found.arch})",
                hint='compile the model for this device: target="cuda"',
            )
        module = CodeModule(self._device, file.code(launch.name, found))
        with self._device.current():
            function = module.function(launch.symbol)
            if launch.shared_bytes > STATIC_SHARED:
                self._device.call("cuFuncSetAttribute", function, MAX_DYNAMIC_SHARED_BYTES, launch.shared_bytes)
        self._modules.append(module)
        self._handles[launch.name] = function
        return function

    def launch(self, addresses: Sequence[int], stream: int) -> None:
        """Start all kernels on `stream`, one by one; `addresses` are those of `places`."""
        table = _Table(addresses)
        for each in self._launches:
            each.start(self._device, table, stream)

    def graph(self, addresses: Sequence[int]) -> DeviceGraph:
        """Return all kernels as a graph for these addresses."""
        return DeviceGraph(self._device, self._launches, addresses)


class _Table:
    """The addresses of a run, as launches point to them.

    Attributes:
        values: By position.
    """

    def __init__(self, addresses: Sequence[int]) -> None:
        self.values = (c_uint64 * len(addresses))(*addresses)
        self._begin = ctypes.addressof(self.values)

    def pointers(self, positions: Sequence[int]) -> ctypes.Array[c_void_p]:
        """Return pointers to the addresses at these positions."""
        return (c_void_p * len(positions))(*(self._begin + 8 * position for position in positions))


class DeviceGraph:
    """The kernels of a run with their addresses, which one call starts.

    It is made of nodes, each behind the one before it, and not captured from a stream: whatever else this thread does
    meanwhile, such as freeing memory that nobody holds any more, would end a capture. Calls of a library are captured,
    each alone, in the mode that allows that.
    """

    def __init__(
        self, device: OpenDevice, launches: Sequence[LoadedLaunch | LoadedCall], addresses: Sequence[int]
    ) -> None:
        """The context is current."""
        self._device, table = device, _Table(addresses)
        graph = device.make("cuGraphCreate", 0)
        try:
            node = 0
            for each in launches:
                node = each.add_node(device, table, graph, node)
            self._handle = device.make("cuGraphInstantiateWithFlags", graph, 0)
        finally:
            device.status("cuGraphDestroy", graph)
        own(self, device, "cuGraphExecDestroy", self._handle)

    def launch(self, stream: int) -> None:
        """Start it; the context is current."""
        self._device.call("cuGraphLaunch", self._handle, stream)


def aligned(size: int, alignment: int) -> int:
    """Return the least multiple of `alignment` that is no less."""
    return -(-size // alignment) * alignment


def addresses_of(places: Sequence[tuple[DevicePlace, int]], at: Mapping[DevicePlace, int]) -> list[int]:
    """Return the addresses of `places`, where each begins being in `at`."""
    return [at[place] + offset for place, offset in places]
