"""Primitives, and what runs one on some memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backends.onednn.api import ExecArg, Handle, OneDnn
from fusion.tensors import allocate

_SCRATCHPAD_KIND, _ARGUMENT_KIND = 136, 255
"""`dnnl_query_*_md`: the descriptor of scratch memory, and that of any argument."""


class Primitive:
    """A primitive for any memory of the kinds that its description says."""

    def __init__(self, api: OneDnn, description: Handle) -> None:
        self._api = api
        self._description = description
        self.handle = api.make("dnnl_primitive", "create", description)

    def kind(self, argument: int) -> Any:
        """Return the memory descriptor of an argument."""
        return self._api.query(self._description, _ARGUMENT_KIND, argument)

    @property
    def scratch(self) -> Any:
        """The memory descriptor of what it needs while it runs."""
        return self._api.query(self._description, _SCRATCHPAD_KIND)


@dataclass(frozen=True, eq=False)
class PrimitiveCall:
    """A primitive and the memory that it runs on.

    Attributes:
        primitive: It.
        arguments: An array of `dnnl_exec_arg_t`.
        held: What those refer to.
    """

    primitive: Primitive
    arguments: Any
    held: tuple[Handle, ...]

    @staticmethod
    def of(primitive: Primitive, memory: Mapping[int, Handle]) -> PrimitiveCall:
        """Return what runs a primitive on `memory`, by argument."""
        pairs = [ExecArg(argument, each.pointer) for argument, each in memory.items()]
        return PrimitiveCall(primitive, (ExecArg * len(pairs))(*pairs), tuple(memory.values()))

    def run(self, api: OneDnn, stream: Handle) -> None:
        """Run it; on CPUs it has run when the function returns, and there is no more to wait for."""
        api.call("dnnl_primitive_execute", self.primitive.handle, stream, len(self.arguments), self.arguments)


def allocate_memory(api: OneDnn, kind: Any) -> Handle:
    """Return memory of its own that `kind` describes."""
    return api.make_memory(kind, allocate(api.size(kind)))
