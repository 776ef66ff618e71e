"""Takes out of a kernel what has no element, before it is given loops."""

from __future__ import annotations

from collections.abc import Sequence

from tvm import tirx
from tvm.ir import TensorLoad, Var
from tvm.s_tir.stmt import SBlock, SBlockRealize

from backends.tensorir.extents import extent_of
from backends.tensorir.stages import dims_of
from fusion.structural import find

_NOTHING = tirx.Evaluate(tirx.const(0, "int32"))


def without_elements(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` without blocks that write no element, or what nobody reads then, and with what a sum, or another
    reduction, of nothing begins with in its place; where no result has an element, one that `starts_nothing`.

    ```
    for i in 0: a[i] = ...                                     for j in 4: s[j] = 0
    for j in 4, k in 0: s[j] = 0; s[j] += a[k] * b[k, j]  ->   for j in 4: c[j] = exp(s[j])
    for j in 4: c[j] = exp(s[j])
    ```
    """
    stored = {store.buffer for store in find(func.body, tirx.BufferStore)}
    written = stored.intersection(func.params)
    if written and all(0 in dims_of(buffer) for buffer in written):
        return func.with_body(_NOTHING)
    root = func.body
    if not isinstance(root, SBlockRealize):
        return func
    body = root.block.body
    nests = list(body.seq) if isinstance(body, tirx.SeqStmt) else [body]
    kept = [made for nest in nests if (made := _with_elements(nest)) is not None]
    if len(kept) == len(nests) and all(made.same_as(nest) for made, nest in zip(kept, nests, strict=True)):
        return func
    kept = _read_later(kept, func.params)
    old, made = root.block, tirx.SeqStmt(kept) if len(kept) > 1 else kept[0]
    used = set(find(made, Var))
    buffers = [buffer for buffer in old.alloc_buffers if buffer in used]
    block = SBlock([], old.reads, old.writes, old.name_hint, made, None, buffers, [], old.annotations)
    return func.with_body(SBlockRealize([], True, block))


def starts_nothing(func: tirx.PrimFunc) -> bool:
    """Return whether nothing is left of a kernel."""
    return isinstance(func.body, tirx.Evaluate)


def _with_elements(nest: tirx.Stmt) -> tirx.Stmt | None:
    """Return the loops of a block; None of one that writes no element."""
    loops: list[tirx.For] = []
    inner = nest
    while isinstance(inner, tirx.For):
        loops.append(inner)
        inner = inner.body
    if not isinstance(inner, SBlockRealize):
        return nest
    block = inner.block
    empty = {int(axis.iter_type) for axis in block.iter_vars if extent_of(axis.dom.extent) == 0}
    if tirx.IterVar.DataPar in empty:
        return None
    return _beginning(loops, inner) if empty and block.init is not None else nest


def _read_later(nests: Sequence[tirx.Stmt], params: Sequence[Var]) -> list[tirx.Stmt]:
    """Return those that write a parameter, or what a later one of them reads."""
    needed, kept = set(params), list[tirx.Stmt]()
    for nest in reversed(nests):
        if any(store.buffer in needed for store in find(nest, tirx.BufferStore)):
            kept.insert(0, nest)
            needed.update(load.source for load in find(nest, TensorLoad))
    return kept


def _beginning(loops: list[tirx.For], inner: SBlockRealize) -> tirx.Stmt:
    """Return what a reduction begins with, over its other axes."""
    block = inner.block
    pairs = zip(block.iter_vars, inner.iter_values, strict=True)
    kept = [(axis, at) for axis, at in pairs if int(axis.iter_type) == tirx.IterVar.DataPar]
    axes, places = [axis for axis, _ in kept], [at for _, at in kept]
    used = {var for at in places for var in find(at, Var)}
    begins = SBlock(axes, [], block.writes, block.name_hint, block.init)
    made: tirx.Stmt = SBlockRealize(places, inner.predicate, begins)
    for loop in reversed(loops):
        if loop.loop_var in used:
            made = tirx.For(loop.loop_var, loop.min, loop.extent, loop.kind, made)
    return made
