"""Drops the casts of shapes that nothing reads: what a converter emitted before it declined.

    y = abs(x); z = match_cast(y, Tensor((3,)))    and no reader of z    ->    nothing

TVM's own elimination keeps them, as the run compares the shape: here with one that no operator of the model asks for.
"""

from __future__ import annotations

from collections.abc import Iterable

import tvm
from tvm import relax

from fusion.bindings import Bindings


def drop_unused_casts(mod: tvm.IRModule) -> tvm.IRModule:
    """Return `mod` with no code that nothing reads, of `main`."""
    mod = relax.transform.DeadCodeElimination()(mod)
    unused = _unused(mod["main"])
    while unused:
        fewer = mod.clone()
        fewer["main"] = _without(mod["main"], unused)
        needed = set(relax.analysis.free_symbolic_vars(fewer["main"]))
        kept = [cast for cast in unused if needed.intersection(_symbols(cast))]
        if kept:
            fewer["main"] = _without(mod["main"], [cast for cast in unused if cast not in kept])
        if len(kept) == len(unused):
            return mod
        mod = relax.transform.DeadCodeElimination()(fewer)
        unused = _unused(mod["main"])
    return mod


def _unused(main: relax.Function) -> list[relax.MatchCast]:
    bindings = Bindings.of(main).all
    casts = [binding for binding in bindings if isinstance(binding, relax.MatchCast)]
    if not casts:
        return []
    read = {var for binding in bindings for var in relax.analysis.free_vars(binding.value)}
    read.update(relax.analysis.free_vars(main.body.body))
    return [cast for cast in casts if cast.var not in read]


def _symbols(cast: relax.MatchCast) -> Iterable[tvm.tirx.Var]:
    return relax.analysis.tir_vars_in_type(cast.ty)  # type: ignore[no-any-return]


def _without(main: relax.Function, dropped: Iterable[relax.MatchCast]) -> relax.Function:
    names = {cast.var for cast in dropped}
    blocks = [type(block)([item for item in block.bindings if item.var not in names]) for block in main.body.blocks]
    return relax.Function(main.params, relax.SeqExpr(blocks, main.body.body), main.ret_ty, main.is_pure, main.attrs)
