"""The kernels of a model on a device, and a run of them: one launch after another, or as a graph, in which each waits
for those alone whose memory it touches."""

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
from fusion.order import Order, Touched, order_of, place_apart

WORKSPACE = "workspace"
"""The kind of the places of what kernels of one PrimFunc hand each other, and of what libraries work in."""


@dataclass(frozen=True)
class LoadedLaunch:
    """A kernel on the device, with the positions of its pointers, and of what it writes, in the table of a run's
    addresses."""

    function: int
    blocks: int
    threads: int
    shared_bytes: int
    pointers: tuple[int, ...]
    writes: tuple[int, ...]

    @property
    def touched(self) -> Touched:
        """The memory that it touches, as positions in that table."""
        return Touched(frozenset(self.pointers), frozenset(self.writes))

    def start(self, device: OpenDevice, table: _Table, stream: int) -> None:
        """Start it on a stream; the context is current."""
        device.call(
            "cuLaunchKernel", self.function, self.blocks, 1, 1, self.threads, 1, 1, self.shared_bytes, stream,
            table.pointers(self.pointers), None,
        )  # fmt: skip

    def add_node(self, device: OpenDevice, table: _Table, graph: int, before: Sequence[int]) -> int:
        """Return its node in a graph, behind the nodes `before`."""
        node, pointers = c_void_p(), table.pointers(self.pointers)
        made = KernelNode(
            self.function, self.blocks, 1, 1, self.threads, 1, 1, self.shared_bytes, ctypes.addressof(pointers)
        )
        device.call("cuGraphAddKernelNode_v2", ctypes.byref(node), graph, *_behind(before), ctypes.byref(made))
        return node.value or 0


@dataclass(frozen=True)
class LoadedCall:
    """Work of a library, with the positions of its tensors, of what it works in, and of its result, in that table."""

    work: LoadedWork
    tensors: tuple[int, ...]
    workspace: int
    result: int

    @property
    def touched(self) -> Touched:
        """The memory that it touches, as positions in that table."""
        return Touched(frozenset(self.tensors), frozenset({self.result, self.workspace}))

    def start(self, device: OpenDevice, table: _Table, stream: int) -> None:
        """Start it on a stream; the context is current."""
        self.work.run([table.values[each] for each in self.tensors], table.values[self.workspace], stream)

    def add_node(self, device: OpenDevice, table: _Table, graph: int, before: Sequence[int]) -> int:
        """Return its node in a graph, behind the nodes `before`: what it does on a stream, captured alone."""
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


def _behind(nodes: Sequence[int]) -> tuple[Any, int]:
    """Return what functions of graphs take for the nodes that one waits for."""
    return (c_void_p * len(nodes))(*nodes) if nodes else None, len(nodes)


class LoadedKernels:
    """The launches of a run.

    Attributes:
        launches: In the order of the plan.
        order: Which of them wait for which.
        workspaces: What the launches of one PrimFunc hand each other, and what libraries work in: which bytes of memory
            that those share which never run at a time.
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
        self._table: dict[DevicePlace, int] = {}
        self.launches = list[LoadedLaunch | LoadedCall]()
        works = dict[DevicePlace, tuple[Sequence[int], int]]()
        for start in run.starts:
            first, number = len(self.launches), len(works)
            launches, sizes = self._start(file, start, number)
            self.launches += launches
            used = range(first, len(self.launches))
            works |= {_workspace(number + at): (used, aligned(size, alignment)) for at, size in enumerate(sizes)}
        self.order: Order = order_of([each.touched for each in self.launches])
        self.workspaces = dict(zip(works, place_apart(list(works.values()), self.order), strict=True))

    @property
    def places(self) -> tuple[DevicePlace, ...]:
        """What launches touch, in the order of the table of addresses."""
        return tuple(self._table)

    @property
    def workspace_bytes(self) -> int:
        """Of all workspaces together."""
        return max((held.stop for held in self.workspaces.values()), default=0)

    def addresses(self, at: Mapping[DevicePlace, int]) -> list[int]:
        """Return the table of the addresses of a run, where each place is in `at`."""
        return [at[place] for place in self._table]

    def _start(
        self, file: CodeFile, start: KernelStart, number: int
    ) -> tuple[list[LoadedLaunch | LoadedCall], tuple[int, ...]]:
        """Return what a PrimFunc starts, and the bytes of each workspace it has, the first of which is this one."""
        function = file.functions.get(start.kernel)
        if function is None or function.parameters != len(start.tensors):
            raise ValueError(f"there is no kernel {start.kernel!r} of {len(start.tensors)} tensors in its code")
        work = None if function.call is None else self._work(start.kernel, function.call)
        sizes = function.workspaces if work is None else (work.workspace_bytes,)
        places = [*start.tensors, *(_workspace(number + at) for at in range(len(sizes)))]
        positions = [self._table.setdefault(place, len(self._table)) for place in places]
        if work is not None and function.call is not None:
            *given, workspace = positions
            tensors = tuple(given[each] for each in function.call.arguments)
            return [LoadedCall(work, tensors, workspace, tensors[function.call.work.result])], sizes
        launches: list[LoadedLaunch | LoadedCall] = [
            LoadedLaunch(
                self._function(file, each), each.blocks, each.threads, each.shared_bytes,
                pointers=tuple(positions[argument] for argument in each.arguments),
                writes=tuple(positions[argument] for argument in each.writes),
            )
            for each in function.launches
        ]  # fmt: skip
        return launches, sizes

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
        """Start all kernels on `stream`, one by one."""
        table = _Table(addresses)
        for each in self.launches:
            each.start(self._device, table, stream)

    def graph(self, addresses: Sequence[int]) -> DeviceGraph:
        """Return all kernels as a graph for these addresses."""
        return DeviceGraph(self._device, self.launches, self.order, addresses)


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

    It is made of nodes, each behind those that it waits for, and not captured from a stream: whatever else this thread
    does meanwhile, such as freeing memory that nobody holds any more, would end a capture. Calls of a library are
    captured, each alone, in the mode that allows that.
    """

    def __init__(
        self,
        device: OpenDevice,
        launches: Sequence[LoadedLaunch | LoadedCall],
        order: Order,
        addresses: Sequence[int],
    ) -> None:
        """The context is current."""
        self._device, table = device, _Table(addresses)
        graph = device.make("cuGraphCreate", 0)
        try:
            nodes = list[int]()
            for each, waits in zip(launches, order.waits, strict=True):
                nodes.append(each.add_node(device, table, graph, [nodes[one] for one in waits]))
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


def _workspace(number: int) -> DevicePlace:
    return DevicePlace(WORKSPACE, number)
