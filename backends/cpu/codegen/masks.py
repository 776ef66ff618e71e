"""Lanes that are idle: what `Nest.masked` says of statements becomes masks of the loads and stores in them.

TVM makes scalar code of a vector under a condition; with masks AVX-512 loads and stores some lanes as fast as all.
"""

from __future__ import annotations

from collections.abc import Set

import tvm
from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm_ffi.structural import StructuralMutator

from backends.cpu.codegen.share_memory import has_static_size
from backends.tensorir.emit import MASKED, Expr
from fusion.structural import contains, find, mutate


def mask_lanes() -> tvm.transform.Pass:
    """Return the pass, which comes when nothing else changes loads and stores, and registers can still be told."""

    def run(mod: tvm.IRModule, _: tvm.transform.PassContext) -> tvm.IRModule:
        functions = {symbol: _masked(func) for symbol, func in mod.functions.items()}
        return tvm.IRModule(functions, attrs=mod.attrs)

    return tvm.transform.module_pass(run, opt_level=0, name="MaskLanes")


def _masked(func: tirx.PrimFunc) -> tirx.PrimFunc:
    if not contains(func.body, (tirx.AttrStmt, _is_mark)):
        return func

    registers = {found.buffer for found in find(func.body, tirx.AllocBuffer) if has_static_size(found.buffer)}

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        return _with_masks(found.body, found.value, registers) if _is_mark(found) else mutator.default_mutate(found)

    return func.with_body(mutate(func.body, [(tirx.AttrStmt, attribute)]))


def _is_mark(found: tirx.AttrStmt) -> bool:
    return bool(found.attr_key == MASKED)


def _with_masks(body: tirx.Stmt, active: Expr, registers: Set[Var]) -> tirx.Stmt:
    """Return statements whose vectors have as many `active` lanes, but for those that say so themselves, and registers.

    `out[ramp] = f(x[ramp])`  ->  `masked_store(out, f(masked_load(x, ramp, mask)), ramp, mask)`,
    and where TVM has made a loop of them: `for lane in range(16)`  ->  `for lane in range(min(16, active))`.
    Loads of places apart, whose mask TVM hands whole to each lane, read that of the last active lane for idle ones.
    """

    def load(found: TensorLoad, mutator: StructuralMutator) -> object:
        if found.source in registers or not isinstance(found.indices[0], tirx.Ramp):
            return mutator.default_mutate(found)
        if not _is_contiguous(found.indices[0]):
            return tirx.BufferLoad(found.source, [_within(found.indices[0], active)])
        mask = _mask(found.indices[0], active)
        return tirx.call_intrin(found.ty, "tirx.masked_load", found.source, found.indices[0], mask)

    def store(found: tirx.BufferStore, mutator: StructuralMutator) -> object:
        inner = mutator.default_mutate(found)
        index = inner.indices[0]
        if inner.buffer in registers or not isinstance(index, tirx.Ramp):
            return inner
        call = tirx.call_intrin("void", "tirx.masked_store", inner.buffer, inner.value, index, _mask(index, active))
        return tirx.Evaluate(call)

    def attribute(found: tirx.AttrStmt, mutator: StructuralMutator) -> object:
        return _with_masks(found.body, found.value, registers) if _is_mark(found) else mutator.default_mutate(found)

    def loop(found: tirx.For, mutator: StructuralMutator) -> object:
        inner = mutator.default_mutate(found)
        if not _is_of_lanes(found):
            return inner
        extent = tirx.min(inner.extent, tirx.Cast(str(inner.extent.ty.dtype), active))
        return tirx.For(
            inner.loop_var, inner.min, extent, inner.kind, inner.body, inner.thread_binding, inner.annotations,
            inner.step,
        )  # fmt: skip

    rules = [(TensorLoad, load), (tirx.BufferStore, store), (tirx.AttrStmt, attribute), (tirx.For, loop)]
    return mutate(body, rules)


def _is_of_lanes(loop: tirx.For) -> bool:
    """Return whether a loop takes the lanes one by one: an innermost one in which nothing is a vector."""
    stores = find(loop.body, tirx.BufferStore)
    return not find(loop.body, tirx.For) and all("x" not in str(store.value.ty.dtype) for store in stores)


def _is_contiguous(index: tirx.Ramp) -> bool:
    return isinstance(index.stride, tirx.IntImm) and int(index.stride) == 1


def _within(index: tirx.Ramp, active: Expr) -> Expr:
    """Return the places of a vector load, those of idle lanes that of the last active one, of which there is one."""
    dtype, lanes = str(index.base.ty.dtype), int(index.lanes)
    number = tirx.Ramp(tirx.const(0, dtype), tirx.const(1, dtype), lanes)
    last = tirx.Broadcast(tirx.Cast(dtype, active) - tirx.const(1, dtype), lanes)
    return tirx.Broadcast(index.base, lanes) + tirx.min(number, last) * tirx.Broadcast(index.stride, lanes)


def _mask(index: tirx.Ramp, active: Expr) -> Expr:
    lanes = int(index.lanes)
    number = tirx.Ramp(tirx.const(0, "int32"), tirx.const(1, "int32"), lanes)
    return number < tirx.Broadcast(tirx.Cast("int32", active), lanes)
