"""A sequence made ready to run: constants lie as primitives ask for them, and the memory between them is one piece."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from backends.onednn.api import Handle, OneDnn
from backends.onednn.arena import Lifetime, place_all
from backends.onednn.operation import Constants, PrimitiveSequence
from backends.onednn.plan import Buffer, SequencePlan, make_plan
from backends.onednn.primitive_call import PrimitiveCall
from backends.onednn.work import is_worth_sharing
from fusion.tensors import allocate


@dataclass(frozen=True, eq=False)
class _Slot:
    """What one call at a time runs with.

    Attributes:
        inputs, outputs: Memory whose address is that of an array of a call, and which it is.
        calls: What runs, in order.
        stream: Where.
    """

    inputs: tuple[tuple[int, Handle], ...]
    outputs: tuple[tuple[int, Handle], ...]
    calls: tuple[PrimitiveCall, ...]
    stream: Handle


class Executable:
    """Runs a sequence, on one thread what is too short for more; each call that runs at a time has memory to itself."""

    def __init__(self, api: OneDnn, sequence: PrimitiveSequence, constants: Constants, threads: int) -> None:
        self._api, self._sequence = api, sequence
        self._threads = threads if is_worth_sharing(sequence) else 1
        self._idle: SimpleQueue[_Slot] = SimpleQueue()
        with api.threads.team(self._threads):
            self.plan = make_plan(api, sequence, constants)
            self._offsets, self.arena_bytes = _place_buffers(self.plan)
            self._idle.put(self._make_slot())

    def __call__(self, arrays: Sequence[np.ndarray]) -> Sequence[np.ndarray]:
        """Return the results of a call."""
        results = [np.empty(self._sequence.shape(value), np.float32) for value in self._sequence.results]
        given = [np.ascontiguousarray(array) for array in arrays]
        with self._api.threads.team(self._threads):
            try:
                slot = self._idle.get_nowait()
            except Empty:
                slot = self._make_slot()
            for held, places in ((given, slot.inputs), (results, slot.outputs)):
                for place, memory in places:
                    self._api.call("dnnl_memory_set_data_handle", memory, held[place].ctypes.data)
            for call in slot.calls:
                call.run(self._api, slot.stream)
        self._idle.put(slot)
        return results

    def _make_slot(self) -> _Slot:
        """Return memory for a call, and what runs in it."""
        arena = allocate(self.arena_bytes)
        inputs, outputs = list[tuple[int, Handle]](), list[tuple[int, Handle]]()

        def memory(buffer: Buffer, kind: Any) -> Handle:
            offset = self._offsets.get(buffer)
            made = self._api.make_memory(kind, None if offset is None else arena[offset : offset + buffer.size])
            if buffer.input is not None:
                inputs.append((buffer.input, made))
            if buffer.output is not None:
                outputs.append((buffer.output, made))
            return made

        calls = []
        for step in self.plan.steps:
            read = {at: memory(*where) for at, where in step.buffers.items()}
            calls.append(PrimitiveCall.of(step.primitive, {**step.constants, **read}))
        return _Slot(tuple(inputs), tuple(outputs), tuple(calls), self._api.make_stream())


def _place_buffers(plan: SequencePlan) -> tuple[Mapping[Buffer, int], int]:
    """Return where in one piece of memory each buffer lies that is no input or output, and the bytes of that."""
    spans: dict[Buffer, list[int]] = {}
    for place, step in enumerate(plan.steps):
        for buffer, _ in step.buffers.values():
            if buffer.input is None and buffer.output is None:
                spans.setdefault(buffer, []).append(place)
    offsets, size = place_all([Lifetime(buffer.size, span[0], span[-1]) for buffer, span in spans.items()])
    return dict(zip(spans, offsets, strict=True)), size
