"""The whole compilation as one flat list: module in, module out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from fusion.context import Context
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.passes.lift_weights import lift_weights

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


def lower(imported: ImportedModel, ctx: Context) -> Lowered:
    """Run every pass over the Relax module of `imported` under the target of `ctx`."""
    mod = imported.mod
    with ctx.target:
        for apply in passes(ctx):
            mod = apply(mod)
    mod, weights = lift_weights(mod)
    return Lowered(mod, weights, kernels={})
