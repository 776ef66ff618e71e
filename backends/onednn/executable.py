"""A primitive made ready to run: constants lie as it asks for, other operands are brought there in each call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from backends.onednn.api import ExecArg, Handle, OneDnn
from backends.onednn.operation import DST, SCRATCHPAD, SRC, Operation, PrimitiveOperand
from backends.onednn.primitives import describe, plain_attributes, plain_kind
from fusion.tensors import allocate

_SCRATCHPAD_KIND, _ARGUMENT_KIND = 136, 255
"""`dnnl_query_*_md`: the descriptor of scratch memory, and that of any argument."""


@dataclass(frozen=True, eq=False)
class _Launch:
    """A primitive and the memory that it runs on.

    Attributes:
        primitive: It.
        arguments: An array of `dnnl_exec_arg_t`.
        held: What those refer to.
    """

    primitive: Handle
    arguments: Any
    held: tuple[Any, ...]


@dataclass(frozen=True, eq=False)
class _Slot:
    """What one call at a time runs with.

    Attributes:
        inputs: Memory whose address is that of a parameter's array, by its position.
        output: That of the result.
        launches: What runs, in order.
        stream: Where.
    """

    inputs: tuple[tuple[int, Handle], ...]
    output: Handle
    launches: tuple[_Launch, ...]
    stream: Handle


class _Primitive:
    """A primitive for any memory of the kinds that its description says."""

    def __init__(self, api: OneDnn, description: Handle) -> None:
        self._api = api
        self._description = description
        self._primitive = api.make("dnnl_primitive", "create", description)

    def kind(self, argument: int) -> Any:
        """Return the memory descriptor of an argument."""
        return self._api.query(self._description, _ARGUMENT_KIND, argument)

    def launch(self, memory: Mapping[int, Handle]) -> _Launch:
        """Return what runs it on `memory`, by argument, with scratch memory of its own."""
        scratch = self._api.query(self._description, _SCRATCHPAD_KIND)
        given = {**memory, SCRATCHPAD: _allocate(self._api, scratch)} if self._api.size(scratch) else dict(memory)
        pairs = [ExecArg(argument, each.pointer) for argument, each in given.items()]
        return _Launch(self._primitive, (ExecArg * len(pairs))(*pairs), (self, *given.values()))


def _allocate(api: OneDnn, kind: Any) -> Handle:
    return api.make_memory(kind, allocate(api.size(kind)))


class Executable:
    """Runs an operation; each call that runs at a time has memory to itself."""

    def __init__(self, api: OneDnn, operation: Operation, constants: Mapping[int, np.ndarray], threads: int) -> None:
        self._api, self._operation, self._threads = api, operation, threads
        self._idle: SimpleQueue[_Slot] = SimpleQueue()
        with api.team(threads):
            self._primitive = _Primitive(api, describe(api, operation))
            operands = operation.all_operands()
            self._constants = {
                argument: self._brought(operands[argument], array) for argument, array in constants.items()
            }
            self._idle.put(self._make_slot())

    def __call__(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the result of a call, in a list."""
        result = np.empty(self._operation.result, np.float32)
        with self._api.team(self._threads):
            try:
                slot = self._idle.get_nowait()
            except Empty:
                slot = self._make_slot()
            held = [np.ascontiguousarray(arrays[place]) for place, _ in slot.inputs]
            for (_, memory), array in zip(slot.inputs, held, strict=True):
                self._api.call("dnnl_memory_set_data_handle", memory, array.ctypes.data)
            self._api.call("dnnl_memory_set_data_handle", slot.output, result.ctypes.data)
            for launch in slot.launches:
                self._run(launch, slot.stream)
        self._idle.put(slot)
        return [result]

    def _run(self, launch: _Launch, stream: Handle) -> None:
        """Run a primitive; on CPUs it has run when the function returns, and there is no more to wait for."""
        self._api.call("dnnl_primitive_execute", launch.primitive, stream, len(launch.arguments), launch.arguments)

    def _brought(self, operand: PrimitiveOperand, array: np.ndarray) -> Handle:
        """Return a constant in the order in memory that the primitive asks for."""
        kind = plain_kind(self._api, operand.shape)
        given = self._api.make_memory(kind, np.ascontiguousarray(array))
        brought, reorders = self._between(given, kind, self._primitive.kind(operand.argument))
        for reorder in reorders:
            self._run(reorder, self._api.make_stream())
        return brought

    def _between(self, given: Handle, kind: Any, wanted: Any) -> tuple[Handle, list[_Launch]]:
        """Return memory of the kind that is `wanted`, and what brings there what is `given`."""
        if self._api.are_equal(kind, wanted):
            return given, []
        brought = _allocate(self._api, wanted)
        return brought, [self._reorder(kind, wanted).launch({SRC: given, DST: brought})]

    def _reorder(self, given: Any, wanted: Any) -> _Primitive:
        api = self._api
        description = api.make_description("reorder", given, api.engine, wanted, api.engine, plain_attributes(api))
        return _Primitive(api, description)

    def _make_slot(self) -> _Slot:
        """Return memory for a call, and what runs in it: the primitive, between reorders of what it reads and makes."""
        memory = dict(self._constants)
        inputs, before, after = list[tuple[int, Handle]](), list[_Launch](), list[_Launch]()
        for argument, operand in self._operation.all_operands().items():
            if argument in self._constants:
                continue
            kind = plain_kind(self._api, operand.shape)
            given = self._api.make_memory(kind)
            inputs.append((operand.source, given))
            memory[argument], reorders = self._between(given, kind, self._primitive.kind(argument))
            before += reorders
        kind, made = plain_kind(self._api, self._operation.shape), self._primitive.kind(DST)
        output = memory[DST] = self._api.make_memory(kind)
        if not self._api.are_equal(kind, made):
            memory[DST] = _allocate(self._api, made)
            after.append(self._reorder(made, kind).launch({SRC: memory[DST], DST: output}))
        launches = (*before, self._primitive.launch(memory), *after)
        return _Slot(tuple(inputs), output, launches, self._api.make_stream())
