"""What LLVM may take for granted of addresses: those of tensors, and of the stack frames of functions."""

from __future__ import annotations

import tvm
from tvm import tirx
from tvm_ffi.structural import StructuralMutator

from backends.tensorir.emit import Nest, prefetch
from fusion.structural import mutate


def align(mod: tvm.IRModule) -> tvm.IRModule:
    """Let code read and write at any address its elements may have, and save vector registers in whole cache lines.

    NumPy aligns arrays to 16 bytes, and TVM assumes 64 of every argument. A copy of each input took as long as a
    memory-bound kernel; vector instructions without the assumption are as fast where an address is aligned after all.

    LLVM aligns the stack frame of a function only for objects that it knows of before it runs out of registers. At the
    16 bytes of the caller's frame, what it saves then lies in two lines each, and reading that back stalls: a first
    layer took 900 us in one thread of a process and 257 in another. So each function gets an object of a line.
    """

    def loop(found: tirx.For, mutator: StructuralMutator) -> object:
        inner = mutator.default_mutate(found)
        if found.kind != tirx.ForKind.PARALLEL:  # whose body becomes a function
            return inner
        return tirx.For(
            inner.loop_var, inner.min, inner.extent, inner.kind, with_line(inner.body), inner.thread_binding,
            inner.annotations, inner.step,
        )  # fmt: skip

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        if found.attr_key == "storage_alignment":
            # A kernel has one of these around the next for each of its tensors: too many to go into one by one.
            body = found.body
            while isinstance(body, tirx.AttrStmt) and body.attr_key == "storage_alignment":
                body = body.body
            return mutator.mutate(body)
        inner = mutator.default_mutate(found)
        if found.attr_key != "compute_scope":  # the rest of a function
            return inner
        return tirx.AttrStmt(inner.node, inner.attr_key, inner.value, with_line(inner.body))

    rules = [(tirx.For, loop), (tirx.AttrStmt, attribute)]
    functions = {symbol: func.with_body(mutate(func.body, rules)) for symbol, func in mod.functions.items()}
    return tvm.IRModule(functions, attrs=mod.attrs)


def with_line(body: tirx.Stmt) -> tirx.Stmt:
    """Return `body` behind a local object of a cache line, whose address a prefetch keeps LLVM from removing."""
    nest = Nest()
    prefetch(nest, tirx.BufferLoad(nest.allocate("line", (1,), "float32x16"), [tirx.const(0, "int32")]))
    nest.add(body)
    return nest.finish()
