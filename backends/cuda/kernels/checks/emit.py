"""The loops of a check, whose kernel comes with loops for a CPU: `fusion/guards/kernel.py`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tvm import tirx
from tvm.ir import Call, Op
from tvm.tirx import ForKind
from tvm_ffi.structural import StructuralMutator

from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.pointwise.emit import THREADS
from backends.tensorir.emit import Nest, int64
from backends.tensorir.written import written_loops
from fusion.carried_errors import REFUSE
from fusion.declined import Declined
from fusion.structural import find, mutate


def emit_check(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with a value a thread. No host answers beside a device: as PyTorch's indexing does there, a value
    that does not hold stops the kernel, and the launch fails.

    ```
    for i: failed |= fails(values[i]); checked[i] = kept(values[i])     for block, thread in T.grid(..., 256):
    if failed:                                                     ->       i = block * 256 + thread
        for i: if fails(values[i]): refuse(...)                             if i < size:
                                                                                if fails(values[i]): trap()
                                                                                checked[i] = kept(values[i])
    ```

    Where many values are divided among parallel parts, the first part has them all; one value has no loop to refuse it.

    Raises:
        Declined: It is no such kernel, or has no values.
    """
    written = written_loops(func)
    if written is None:
        raise Declined("it does not come with its loops")
    if {name for call in find(written.body, Call) if (name := _called(call))} != {REFUSE}:
        raise Declined("its loops are for a CPU")
    keeping, *others = find(written.body, tirx.For)
    refusing = find(written.body, tirx.IfThenElse)[-1].then_case
    nest, size = Nest(), int(refusing.extent) if isinstance(refusing, tirx.For) else 1
    if size == 0:
        raise Declined("it is empty")
    with (
        bound_loop(nest, "blockIdx.x", -(-size // THREADS)) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        at = block * THREADS + thread
        with nest.when(at < size):
            nest.extend(tirx.Bind(loop.loop_var, int64(0)) for loop in others if loop.kind == ForKind.PARALLEL)
            for each in (refusing, keeping):
                nest.extend(_for_one(each, at))
    return func.with_body(nest.finish())


def _for_one(loop: tirx.Stmt, at: Any) -> Iterator[tirx.Stmt]:
    """Yield what a loop does in one of its turns, or what is done once, as a thread does it."""
    if isinstance(loop, tirx.For):
        yield tirx.Bind(loop.loop_var, at)
        loop = loop.body
    yield mutate(loop, [(tirx.Evaluate, _stop), (tirx.BufferStore, _without_flags)])


def _called(call: Call) -> str:
    """Return the name of a function of the host that is called; "" where it is none."""
    if not isinstance(call.op, Op) or call.op.name != "tirx.tvm_call_packed":
        return ""
    name, *_ = call.args
    return str(name.value)


def _stop(statement: tirx.Evaluate, mutator: StructuralMutator) -> Any:
    return tirx.Evaluate(tirx.call_extern("void", "__trap"))


def _without_flags(store: tirx.BufferStore, mutator: StructuralMutator) -> Any:
    return tirx.Evaluate(tirx.const(0, "int32")) if str(store.buffer.name) == "failed" else store
