"""The whole compilation as one flat list: module in, module out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from fusion.context import Context

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def passes(ctx: Context) -> list[Pass]:
    """Return the passes that turn an imported module into PrimFuncs and Relax VM code for `ctx`."""
    return [
        relax.transform.LegalizeOps(),
        relax.transform.AnnotateTIROpPattern(),
        relax.transform.FoldConstant(),
        relax.transform.FuseOps(),
        relax.transform.FuseTIR(),
    ]


def lower(mod: tvm.IRModule, ctx: Context) -> tvm.IRModule:
    """Run every pass over `mod` under the target of `ctx`."""
    with ctx.target:
        for apply in passes(ctx):
            mod = apply(mod)
    return mod
