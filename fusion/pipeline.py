"""The whole compilation as two flat lists, of what runs on every graph alone and then on all joined: module in, module
out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import tvm
from tvm import relax

from backends.cpu.anchors.chains import judge
from backends.cpu.kernel_info import kernel_info
from backends.cpu.legalize import LEGALIZATIONS
from backends.cpu.loop_text import loop_lines
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
from fusion.passes.lower_einsum import LowerEinsum
from fusion.passes.lower_precision import LowerPrecision
from fusion.passes.split_conv3d import SplitConv3d
from fusion.passes.widen_conv1d import WidenConv1d
from fusion.report.estimate import estimate_kernels, nominal_limits
from fusion.report.read_graph import MAIN
from fusion.report.record import Trace, record_graph
from partition.form_groups import FormGroups

Pass = Callable[[tvm.IRModule], tvm.IRModule]


def graph_passes(ctx: Context, trace: Trace) -> list[Pass]:
    """Return the passes that turn an imported module, or a branch, into PrimFuncs and the calls between them; `trace`
    takes what reports need to know of them."""
    return [
        # Phase 1: the graph as it was imported
        LowerEinsum(),
        FoldConstants(),
        FoldPads(),
        WidenConv1d(),
        FoldScales(),
        SplitConv3d(),
        relax.transform.DecomposeOpsForInference(),
        # Phase 2: where each tensor lies
        AssignLayouts(ctx.machine.vector_lanes, trace.stored),
        *([LowerPrecision(ctx.machine, ctx.threads)] if ctx.precision == "bf16" else []),
        relax.transform.EliminateCommonSubexpr(),
        relax.transform.CanonicalizeBindings(),
        # Phase 3: operators become TensorIR
        CallHostFunctions(),
        LowerAnchors(ctx.machine.vector_lanes),
        relax.backend.DispatchSortScan(),
        relax.transform.LegalizeOps(LEGALIZATIONS),
        # Phase 4: groups become kernels
        trace.groups,
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
    kernels = ScheduleKernels(ctx.machine, ctx.threads)
    traces = {name: Trace(FormGroups(judge(ctx.machine, ctx.threads))) for name in (MAIN, *imported.branches)}
    with ctx.target:
        graphs = {name: _apply(graph_passes(ctx, traces[name]), mod) for name, mod in imported.branches.items()}
        graphs[MAIN] = _apply(graph_passes(ctx, traces[MAIN]), imported.mod)
        mod = _apply(kernel_passes(graphs, kernels), graphs[MAIN])
    mod, weights = lift_weights(mod)
    loops = {name: loop_lines(kernel.made.func) for name, kernel in kernels.scheduled.items()}
    graph = record_graph(imported, graphs, mod, traces, loops)
    infos = {name: kernel_info(name, kernel) for name, kernel in kernels.scheduled.items()}
    infos = estimate_kernels(infos, graph.calls, weights, nominal_limits(ctx.machine, ctx.threads))
    rounding = ("matmuls and convolutions take operands in bfloat16",) if ctx.precision == "bf16" else ()
    return Lowered(mod, weights, infos, (*rounding, *kernels.notes()), graph)


def _apply(passes: list[Pass], mod: tvm.IRModule) -> tvm.IRModule:
    for apply in passes:
        mod = apply(mod)
    return mod
