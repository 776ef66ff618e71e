"""The whole compilation as one flat list: module in, module out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable

import tvm
from tvm import relax

from backends.cpu.kernel_info import kernel_info
from backends.cpu.legalize import LEGALIZATIONS
from backends.cpu.lower_anchors import LowerAnchors
from backends.cpu.schedule_kernels import ScheduleKernels
from fusion.context import Context
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.passes.fold_constants import FoldConstants
from fusion.passes.fold_pads import FoldPads
from fusion.passes.fold_scales import FoldScales
from fusion.passes.inline_branches import inline_branches
from fusion.passes.layout import AssignLayouts
from fusion.passes.lift_weights import lift_weights
from fusion.passes.widen_conv1d import WidenConv1d
from partition.form_groups import FormGroups

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def passes(ctx: Context, groups: FormGroups) -> list[Pass]:
    """Return the passes that turn an imported module into PrimFuncs and the calls between them."""
    return [
        # Phase 1: the graph as it was imported
        FoldConstants(),
        WidenConv1d(),
        FoldPads(),
        FoldScales(),
        relax.transform.DecomposeOpsForInference(),
        # Phase 2: where each tensor lies
        AssignLayouts(),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.CanonicalizeBindings(),
        # Phase 3: operators become TensorIR
        LowerAnchors(ctx.machine.vector_lanes),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(LEGALIZATIONS),
        # Phase 4: groups become kernels
        groups,
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(["main"]),
    ]


def lower(imported: ImportedModel, ctx: Context) -> Lowered:
    """Run every pass over the Relax modules of `imported` under the target of `ctx`."""
    groups, kernels = FormGroups(), ScheduleKernels(ctx.machine, ctx.threads)
    with ctx.target:
        graphs = passes(ctx, groups)
        branches = {name: _apply(graphs, branch) for name, branch in imported.branches.items()}
        mod = inline_branches(_apply(graphs, imported.mod), branches)
        mod = kernels(mod)
    mod, weights = lift_weights(mod)
    infos = {name: kernel_info(name, kernel) for name, kernel in kernels.scheduled.items()}
    kept = [f"{edge.producer} -> {edge.consumer} stays in memory: {edge.reason}" for edge in groups.kept]
    return Lowered(mod, weights, infos, (*kept, *kernels.notes()))


def _apply(graph_passes: list[Pass], mod: tvm.IRModule) -> tvm.IRModule:
    for apply in graph_passes:
        mod = apply(mod)
    return mod
