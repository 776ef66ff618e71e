"""The whole compilation as two flat lists, of what runs on every graph alone and then on all joined: module in, module
out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

from backends.cpu.anchors.attention_plan import judge
from backends.cpu.kernel_info import kernel_info
from backends.cpu.legalize import LEGALIZATIONS
from backends.cpu.lower_anchors import LowerAnchors
from backends.cpu.schedule_kernels import ScheduleKernels
from fusion.context import Context
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.passes.call_host_functions import CallHostFunctions
from fusion.passes.fold_constants import FoldConstants
from fusion.passes.fold_pads import FoldPads
from fusion.passes.fold_scales import FoldScales
from fusion.passes.inline_branches import InlineBranches
from fusion.passes.layout import AssignLayouts
from fusion.passes.lift_weights import lift_weights
from fusion.passes.lower_precision import LowerPrecision
from fusion.passes.widen_conv1d import WidenConv1d
from partition.form_groups import FormGroups

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def graph_passes(ctx: Context, groups: FormGroups) -> list[Pass]:
    """Return the passes that turn an imported module, or a branch, into PrimFuncs and the calls between them."""
    return [
        # Phase 1: the graph as it was imported
        FoldConstants(),
        WidenConv1d(),
        FoldPads(),
        FoldScales(),
        relax.transform.DecomposeOpsForInference(),
        # Phase 2: where each tensor lies
        AssignLayouts(ctx.machine.vector_lanes),
        *([LowerPrecision(ctx.machine, ctx.threads)] if ctx.precision == "bf16" else []),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.CanonicalizeBindings(),
        # Phase 3: operators become TensorIR
        CallHostFunctions(),
        LowerAnchors(ctx.machine.vector_lanes),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(LEGALIZATIONS),
        # Phase 4: groups become kernels
        groups,
        relax.transform.FuseTIR(),
        relax.transform.RewriteDataflowReshape(),
        relax.transform.DeadCodeElimination(["main"]),
    ]


def kernel_passes(branches: Mapping[str, tvm.IRModule], kernels: ScheduleKernels) -> list[Pass]:
    """Return the passes that join a module with its lowered `branches` and give its PrimFuncs their loops."""
    return [
        # Phase 5: one function
        InlineBranches(branches),
        # Phase 6: loops
        kernels,
    ]


def lower(imported: ImportedModel, ctx: Context) -> Lowered:
    """Run every pass over the Relax modules of `imported` under the target of `ctx`."""
    groups, kernels = FormGroups(judge(ctx.machine, ctx.threads)), ScheduleKernels(ctx.machine, ctx.threads)
    with ctx.target:
        per_graph = graph_passes(ctx, groups)
        branches = {name: _apply(per_graph, branch) for name, branch in imported.branches.items()}
        mod = _apply([*per_graph, *kernel_passes(branches, kernels)], imported.mod)
    mod, weights = lift_weights(mod)
    infos = {name: kernel_info(name, kernel) for name, kernel in kernels.scheduled.items()}
    kept = [f"{edge.producer} -> {edge.consumer} stays in memory: {edge.reason}" for edge in groups.kept]
    rounding = ("matmuls and convolutions take operands in bfloat16",) if ctx.precision == "bf16" else ()
    return Lowered(mod, weights, infos, (*rounding, *kept, *kernels.notes()))


def _apply(passes: list[Pass], mod: tvm.IRModule) -> tvm.IRModule:
    for apply in passes:
        mod = apply(mod)
    return mod
