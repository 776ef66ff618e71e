"""Gives buffers the memory of others that are no longer used: TVM's StorageRewrite, for all but registers.

In the memory of a register of 16 elements one of 8 is half of it, which LLVM puts together in each step: a product of
300 columns took 298 us so, and takes 215. On the stack LLVM finds by itself what may share memory.

Buffers whose size only a call knows share none either: TVM takes all of them for equally large, and gives one the
memory of another that the same loop reads, though vectors there overlap. Nor do buffers of booleans: where all their
accesses are vectors of one length, TVM makes them buffers of vectors of bytes, which no `and` or `select` takes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import prod

import tvm
import tvm_ffi
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import StructuralMutator

from fusion.structural import mutate

_REGISTER_BYTES = 64


def share_memory() -> tvm.transform.Pass:
    """Return the pass."""
    rewrite = tirx.transform.StorageRewrite()

    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        registers = {symbol: _Registers() for symbol in mod.functions}
        without = {symbol: registers[symbol].take(func) for symbol, func in mod.functions.items()}
        shared = rewrite(tvm.IRModule(without, attrs=mod.attrs))
        given = {symbol: registers[symbol].give_back(mod[symbol], func) for symbol, func in shared.functions.items()}
        return tvm.IRModule(given, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name="ShareMemory")


@dataclass
class _Registers:
    """Buffers that share nothing, which are parameters for the time being.

    Attributes:
        inside: The registers of each parallel loop, by its variable, and those outside of all.
        others: Those of no known size or of booleans; a load stands where each was allocated.
    """

    inside: dict[Var | None, dict[Var, None]] = field(default_factory=lambda: {None: {}})
    others: dict[Var, None] = field(default_factory=dict)

    def take(self, func: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `func` with its registers among its parameters."""
        loops: list[Var | None] = [None]

        def loop(found: tirx.For, mutator: StructuralMutator) -> object:
            if found.kind != tirx.ForKind.PARALLEL:
                return mutator.default_mutate(found)
            loops.append(found.loop_var)
            inner = mutator.default_mutate(found)
            loops.pop()
            return inner

        def allocation(found: tirx.AllocBuffer, _: StructuralMutator) -> object:
            if has_static_size(found.buffer) and _bytes(found.buffer) <= _REGISTER_BYTES:
                self.inside.setdefault(loops[-1], {})[found.buffer] = None
                return tirx.Evaluate(0)
            if has_static_size(found.buffer) and str(found.buffer.ty.dtype) != "bool":
                return found
            self.others[found.buffer] = None
            return tirx.Evaluate(tirx.BufferLoad(found.buffer, [tirx.const(0, "int64")]))

        body = mutate(func.body, [(tirx.For, loop), (tirx.AllocBuffer, allocation)])
        buffers = [*(buffer for found in self.inside.values() for buffer in found), *self.others]
        return tirx.PrimFunc([*func.params, *buffers], body, func.ret_type, func.attrs)

    def give_back(self, func: tirx.PrimFunc, shared: tirx.PrimFunc) -> tirx.PrimFunc:
        """Return `shared`, which `take` made of `func`, with them where the functions begin that LLVM will see: that of
        each parallel loop, and the rest."""

        def loop(found: tirx.For, mutator: StructuralMutator) -> object:
            inner = mutator.default_mutate(found)
            if found.kind != tirx.ForKind.PARALLEL:
                return inner
            return tirx.For(
                inner.loop_var, inner.min, inner.extent, inner.kind, self._before(found.loop_var, inner.body),
                inner.thread_binding, inner.annotations, inner.step,
            )  # fmt: skip

        def evaluate(found: tirx.Evaluate, _: StructuralMutator) -> object:
            value = found.value
            is_mark = isinstance(value, TensorLoad) and value.source in self.others
            return tirx.AllocBuffer(value.source) if is_mark else found

        return func.with_body(self._before(None, mutate(shared.body, [(tirx.For, loop), (tirx.Evaluate, evaluate)])))

    def _before(self, loop: Var | None, body: tirx.Stmt) -> tirx.Stmt:
        allocations = [tirx.AllocBuffer(buffer) for buffer in self.inside.get(loop, ())]
        return tirx.SeqStmt([*allocations, body]) if allocations else body


def has_static_size(buffer: Var) -> bool:
    """Return whether all extents of a buffer are numbers."""
    return all(isinstance(extent, tirx.IntImm) for extent in buffer.ty.shape)


def _bytes(buffer: Var) -> int:
    """Return the size of a buffer."""
    elements = prod(int(extent) for extent in buffer.ty.shape)
    return elements * int(tvm_ffi.dtype(buffer.ty.dtype.dtype).itemsize)
