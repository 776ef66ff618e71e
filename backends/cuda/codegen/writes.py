"""Which buffers a kernel writes, read off its loops: all others it only reads, so that kernels which share those alone
may run at the same time."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir import Call, Var

from backends.cuda.codegen.device_functions import INSTRUCTIONS
from fusion.structural import find

_ADDRESS, _FUNCTION = "tirx.address_of", "tirx.call_extern"
_DECLARED = re.compile(r"__device__ __forceinline__ \w+ (\w+)\(([^)]*)\)")
_CONSTANT = {
    name: tuple("const" in parameter.split() for parameter in parameters.split(","))
    for name, parameters in _DECLARED.findall(INSTRUCTIONS)
}
"""Of each function of `instructions.cuh` that is no macro, which of its parameters it does not write through."""


def written_by(func: tirx.PrimFunc) -> frozenset[Var]:
    """Return the buffers that `func`, whose loops are bound to blocks and threads, may write: those that it stores to,
    and those of which an address goes where it is not known to be read only."""
    stores, calls, binds = (find(func.body, kind) for kind in (tirx.BufferStore, Call, tirx.Bind))
    stored = [store.buffer for store in stores]
    passed = [place for call in calls for place in _given_to_write(call)]
    return frozenset([*stored, *passed, *(place for bind in binds for place in _place(bind.value))])


def _given_to_write(call: Call) -> Iterator[Var]:
    """Yield the buffers that a call is given, itself or an address in them, without a promise to read only."""
    if call.op.name == _ADDRESS:
        return
    name = ""
    if call.op.name == _FUNCTION:
        function, *_ = call.args
        name = str(function.value).partition("<")[0]
    constant = (False, *_CONSTANT.get(name, ()))
    for number, argument in enumerate(call.args):
        if number >= len(constant) or not constant[number]:
            yield from _place(argument)


def _place(value: Any) -> Iterator[Var]:
    """Yield the buffer that a value is, or is an address in, if it is."""
    if isinstance(value, Call) and value.op.name == _ADDRESS:
        (load,) = value.args
        yield load.source
    elif isinstance(value, Var) and hasattr(value.ty, "shape"):
        yield value
