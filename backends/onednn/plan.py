"""What runs for a sequence: its primitives, and the reorders between those that want a value in another order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from backends.onednn.api import Handle, OneDnn, OneDnnError
from backends.onednn.operation import (
    CONSTANT,
    DST,
    GIVEN,
    SCRATCHPAD,
    SRC,
    Constants,
    Operation,
    PrimitiveOperand,
    PrimitiveSequence,
)
from backends.onednn.primitive_call import Primitive, PrimitiveCall, allocate_memory
from backends.onednn.primitives import IN_PLACE, describe, plain_attributes, plain_kind


@dataclass(eq=False)
class Buffer:
    """Memory of a value.

    Attributes:
        size: Bytes.
        input, output: Which input or result of the sequence lies there; None of what others share.
    """

    size: int
    input: int | None = None
    output: int | None = None


@dataclass(frozen=True, eq=False)
class PrimitiveStep:
    """A primitive that runs.

    Attributes:
        primitive: It.
        constants: Memory of its constants, by argument.
        buffers: Those of its other arguments, each with the memory descriptor under which it is seen.
    """

    primitive: Primitive
    constants: Mapping[int, Handle]
    buffers: Mapping[int, tuple[Buffer, Any]]


@dataclass(frozen=True, eq=False)
class _Form:
    """A value as it lies in some memory, in a shape."""

    buffer: Buffer
    shape: tuple[int, ...]
    kind: Any


@dataclass(eq=False)
class SequencePlan:
    """What runs, in order, which `make_plan` makes.

    Attributes:
        api: The library.
        sequence: What is computed.
        steps: Primitives and reorders.
    """

    api: OneDnn
    sequence: PrimitiveSequence
    steps: list[PrimitiveStep] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._forms: dict[int, list[_Form]] = {}
        self._last_reads = self.sequence.last_reads()

    def start(self) -> None:
        """Let inputs lie in the order of their axes."""
        for number, shape in enumerate(self.sequence.inputs):
            kind = plain_kind(self.api, shape or (1,))
            self._forms[number] = [_Form(Buffer(self.api.size(kind), input=number), shape or (1,), kind)]

    def add(self, place: int, constants: Constants) -> None:
        """Let the operation at a place run."""
        operation = self.sequence.operations[place]
        primitive = Primitive(self.api, self._describe(operation))
        brought: dict[int, Handle] = {}
        buffers: dict[int, tuple[Buffer, Any]] = {}
        for argument, operand in operation.all_operands().items():
            kind = primitive.kind(argument)
            if operand.source == CONSTANT:
                brought[argument] = self._bring(operand, constants[place, argument], kind)
            else:
                buffers[argument] = self._form(operand.source, operand.shape, kind).buffer, kind
        made = primitive.kind(DST)
        buffer = self._in_place(place, operation, buffers, made) or Buffer(self.api.size(made))
        buffers[DST] = buffer, made
        self.steps.append(self._step(primitive, brought, buffers))
        self._forms[len(self.sequence.inputs) + place] = [_Form(buffer, operation.shape, made)]

    def finish(self) -> None:
        """Let results lie in the order of their axes, in memory of their own."""
        for place, value in enumerate(self.sequence.results):
            shape = self.sequence.shape(value)
            kind = plain_kind(self.api, shape)
            buffer = self._form(value, shape, kind).buffer
            if buffer.input is None and buffer.output is None:
                buffer.output = place
            else:
                copy = Buffer(buffer.size, output=place)
                self._reorder((buffer, kind), (copy, kind))

    def _describe(self, operation: Operation) -> Handle:
        """Return the description of a primitive that takes `SRC` as it lies, or else in the order of its axes."""
        src = operation.all_operands()[SRC]
        if src.order == GIVEN and src.source != CONSTANT:
            kinds = [form.kind for form in self._forms[src.source] if form.shape == src.shape]
            try:
                return describe(self.api, operation, kinds[-1] if kinds else None)
            except OneDnnError:
                pass  # oneDNN has this primitive in other orders only
        return describe(self.api, operation)

    def _form(self, value: int, shape: tuple[int, ...], wanted: Any) -> _Form:
        """Return a value as memory of the kind that is `wanted`, brought there where it is in none yet."""
        forms = self._forms[value]
        for form in forms:
            if form.shape == shape and self.api.are_equal(form.kind, wanted):
                return form
        given = next((form for form in forms if form.shape == shape), None)
        if given is None:
            given = self._seen_as(value, shape)
            if self.api.are_equal(given.kind, wanted):
                return given
        form = _Form(Buffer(self.api.size(wanted)), shape, wanted)
        self._reorder((given.buffer, given.kind), (form.buffer, wanted))
        forms.append(form)
        return form

    def _seen_as(self, value: int, shape: tuple[int, ...]) -> _Form:
        """Return a value in the order of its axes under another shape."""
        made = self._forms[value][0].shape
        plain = self._form(value, made, plain_kind(self.api, made))
        seen = _Form(plain.buffer, shape, plain_kind(self.api, shape))
        self._forms[value].append(seen)
        return seen

    def _in_place(
        self, place: int, operation: Operation, buffers: Mapping[int, tuple[Buffer, Any]], made: Any
    ) -> Buffer | None:
        """Return the memory of `SRC` where the result may take its place: nothing reads it any more."""
        if operation.primitive not in IN_PLACE:
            return None
        value = operation.all_operands()[SRC].source
        buffer, kind = buffers[SRC]
        is_free = self._last_reads[value] == place and value not in self.sequence.results and buffer.input is None
        return buffer if is_free and self.api.are_equal(kind, made) else None

    def _bring(self, operand: PrimitiveOperand, array: np.ndarray, wanted: Any) -> Handle:
        """Return a constant in the order in memory that a primitive asks for."""
        kind = plain_kind(self.api, operand.shape)
        given = self.api.make_memory(kind, np.ascontiguousarray(array))
        if self.api.are_equal(kind, wanted):
            return given
        brought = allocate_memory(self.api, wanted)
        reorder = self._reorder_primitive(kind, wanted)
        memory = {SRC: given, DST: brought, SCRATCHPAD: allocate_memory(self.api, reorder.scratch)}
        PrimitiveCall.of(reorder, memory).run(self.api, self.api.make_stream())
        return brought

    def _reorder(self, given: tuple[Buffer, Any], wanted: tuple[Buffer, Any]) -> None:
        self.steps.append(self._step(self._reorder_primitive(given[1], wanted[1]), {}, {SRC: given, DST: wanted}))

    def _step(
        self, primitive: Primitive, constants: Mapping[int, Handle], buffers: Mapping[int, tuple[Buffer, Any]]
    ) -> PrimitiveStep:
        """Return a primitive with the memory that it needs while it runs."""
        scratch = primitive.scratch
        size = self.api.size(scratch)
        own = {SCRATCHPAD: (Buffer(size), scratch)} if size else {}
        return PrimitiveStep(primitive, constants, {**buffers, **own})

    def _reorder_primitive(self, given: Any, wanted: Any) -> Primitive:
        api = self.api
        return Primitive(
            api, api.make_description("reorder", given, api.engine, wanted, api.engine, plain_attributes(api))
        )


def make_plan(api: OneDnn, sequence: PrimitiveSequence, constants: Constants) -> SequencePlan:
    """Return what runs for a sequence. Values stay in the order in memory in which they were made, and are brought to
    another once where a primitive asks for that; constants are now.

    Raises:
        OneDnnError: oneDNN has no primitive for an operation.
        LimitError, MemoryError: There is not that much memory.
    """
    plan = SequencePlan(api, sequence)
    plan.start()
    for place in range(len(sequence.operations)):
        plan.add(place, constants)
    plan.finish()
    return plan
