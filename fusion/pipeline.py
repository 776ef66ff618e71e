"""The whole compilation as two flat lists, of what runs on every graph alone and then on all joined: module in, module
out, one line a pass."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import partial

import tvm
from tvm import relax

from backends.kernel import KernelInfo
from backends.tensorir.kernel_info import kernel_info
from backends.tensorir.legalize_calls import LegalizeCalls
from backends.tensorir.loop_text import loop_lines
from backends.tensorir.lower_anchors import LowerAnchors
from backends.tensorir.schedule_kernels import ScheduleKernels
from fusion.abandon import checkpoint
from fusion.context import Context
from fusion.dump import dump
from fusion.failures import Failures
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.measuring import measuring
from fusion.model_graph import ModelGraph
from fusion.passes.call_host_functions import CallHostFunctions
from fusion.passes.concats import PlaceConcats
from fusion.passes.fold_constants import FoldConstants
from fusion.passes.guard_operands import GuardOperands
from fusion.passes.inline_branches import InlineBranches
from fusion.passes.layout import AssignLayouts
from fusion.passes.lift_weights import lift_weights
from fusion.passes.lower_einsum import LowerEinsum
from fusion.passes.lower_precision import LowerPrecision
from fusion.passes.merge_equal import MergeEqual
from fusion.passes.rewrite_reshapes import RewriteReshapes
from fusion.passes.rotate_halves import RotateHalves
from fusion.passes.split_conv3d import SplitConv3d
from fusion.passes.take_subgraphs import TakeSubgraphs
from fusion.passes.widen_conv1d import WidenConv1d
from fusion.report.estimate import estimate_kernels
from fusion.report.read_graph import MAIN
from fusion.report.record import Trace, read_origins, record_graph
from fusion.rewrites import Rewrite
from fusion.stages import stage
from partition.form_groups import FormGroups
from partition.profitability import Profitability
from partition.techniques import ALL, Technique

Pass = Callable[[tvm.IRModule], tvm.IRModule]


class Form(Enum):
    """How much of the pipeline is used, and what a pass that raises does.

    Attributes:
        WHOLE: All of it; what a pass raises ends the compilation.
        SPARING: A pass that raises is left out where the later ones can do without it.
        PLAIN: TVM's own form of each operator, where it is safe, in a kernel of its own; as before, what raises is left
            out.
    """

    WHOLE = "whole"
    SPARING = "sparing"
    PLAIN = "plain"


_NEEDED = frozenset(
    {"guard_operands", "lower_einsum", "DecomposeOpsForInference", "call_host_functions", "legalize_calls",
     "inline_branches", "schedule_kernels"}
)  # fmt: skip
"""Passes without which the later ones have no module that they take, or a run reads outside of its tensors."""


def graph_passes(ctx: Context, trace: Trace, techniques: frozenset[Technique] = ALL) -> list[Pass]:
    """Return the passes that turn an imported module, or a branch, into PrimFuncs and the calls between them; `trace`
    takes what reports need to know of them. `techniques` other than rewrites and concatenations in place are a
    matter of `trace.groups`."""
    compiler = ctx.compiler
    rewrites = Technique.REWRITES in techniques
    concats = Technique.STITCHING in techniques
    return [
        # Phase 1: the graph as it was imported
        GuardOperands(),
        LowerEinsum(),
        FoldConstants(),
        *([Rewrite(log=trace.rewrites)] if rewrites else []),
        WidenConv1d(),
        SplitConv3d(),
        relax.transform.DecomposeOpsForInference(),
        *([TakeSubgraphs(ctx.libraries, trace.taken, trace.notes)] if ctx.libraries else []),
        # Phase 2: where each tensor lies
        AssignLayouts(compiler.layouts, trace.stored, trace.layouts),
        *([LowerPrecision(compiler.rounding)] if ctx.precision == "bf16" else []),
        RotateHalves(),
        MergeEqual(),
        relax.transform.CanonicalizeBindings(),
        # Phase 3: operators become TensorIR
        CallHostFunctions(),
        LowerAnchors(compiler.lowerings, trace.failures, trace.lowerings),
        LegalizeCalls(compiler.legalizations, compiler.safe_legalizations, trace.failures),
        # Phase 4: groups become kernels; a value that nobody reads would be a reader of others
        relax.transform.DeadCodeElimination(["main"]),
        trace.groups,
        relax.transform.FuseTIR(),
        RewriteReshapes(),
        relax.transform.DeadCodeElimination(["main"]),
        *([PlaceConcats(compiler.decline_kernel, compiler.memory, trace.groups, trace.joined)] if concats else []),
    ]


def plain_passes(ctx: Context, trace: Trace) -> list[Pass]:
    """Return the passes of `Form.PLAIN`: what turns a module into PrimFuncs that are safe to run and nothing more."""
    safe = ctx.compiler.safe_legalizations
    return [
        GuardOperands(),
        LowerEinsum(),
        FoldConstants(),
        relax.transform.DecomposeOpsForInference(),
        CallHostFunctions(),
        relax.backend.DispatchSortScan(),
        LegalizeCalls(safe, safe, trace.failures),
        relax.transform.DeadCodeElimination(["main"]),
    ]


def kernel_passes(
    branches: Mapping[str, tvm.IRModule], kernels: ScheduleKernels, measure: Sequence[Pass] = ()
) -> list[Pass]:
    """Return the passes that join a module with its lowered `branches` and give its PrimFuncs their loops; before that,
    `measure` chooses among loops."""
    return [
        # Phase 5: one function
        InlineBranches(branches),
        # Phase 6: loops
        *measure,
        kernels,
    ]


@stage("passes")
def lower(
    imported: ImportedModel,
    ctx: Context,
    techniques: frozenset[Technique] = ALL,
    decline: Profitability | None = None,
    form: Form = Form.WHOLE,
) -> Lowered:
    """Run every pass over the Relax modules of `imported` under the target of `ctx`.

    Args:
        techniques: Those used; all but in measurements of what each is worth.
        decline: Judges which chains of products become one kernel, where measurements want another verdict than that of
            the cost tables.
        form: How much of the pipeline is used.
    """
    failures = Failures()
    with ctx.target, measuring(ctx) as measured:
        decline = decline or measured.judge(ctx.compiler.decline_fusion)
        schedule = partial(ctx.compiler.schedule, plain=form is Form.PLAIN)
        kernels = ScheduleKernels(schedule, measured.points, name_sources=ctx.cache is not None)
        graphs, traces = {}, {}
        for name, mod in {**imported.branches, MAIN: imported.mod}.items():
            dump(f"{name}.imported" if name else "imported", mod)
            groups = FormGroups(decline, techniques, ctx.compiler.memory.start)
            traces[name] = trace = Trace(groups, failures=failures, origins=read_origins(mod))
            passes = plain_passes(ctx, trace) if form is Form.PLAIN else graph_passes(ctx, trace, techniques)
            graphs[name] = _apply(passes, mod, form, failures, f"{name}." if name else "")
        joined = kernel_passes(graphs, kernels, measured.passes(imported.inputs))
        mod = _apply(joined, graphs[MAIN], form, failures)
    with stage("lift_weights"):
        mod, weights = lift_weights(mod)
    with stage("report"):
        infos, graph = _report(imported, graphs, mod, weights, traces, kernels, ctx, failures)
    rounding = ("matmuls and convolutions take operands in bfloat16",) if ctx.precision == "bf16" else ()
    rewritten = [note for trace in traces.values() for note in trace.told()]
    taken = {key: data for trace in traces.values() for key, data in trace.taken.items()}
    notes = (*failures.notes, *rounding, *rewritten, *kernels.notes(), *measured.notes)
    return Lowered(mod, weights, infos, notes, graph, taken)


def _report(
    imported: ImportedModel,
    graphs: Mapping[str, tvm.IRModule],
    mod: tvm.IRModule,
    weights: Sequence[tvm.runtime.Tensor],
    traces: Mapping[str, Trace],
    kernels: ScheduleKernels,
    ctx: Context,
    failures: Failures,
) -> tuple[dict[str, KernelInfo], ModelGraph]:
    """Return what `explain()` says of each kernel, and of the model before and after."""
    loops = {name: loop_lines(kernel.made.func) for name, kernel in kernels.scheduled.items()}
    infos = {name: kernel_info(name, kernel) for name, kernel in kernels.scheduled.items()}
    try:
        graph = record_graph(imported, graphs, mod, traces, loops)
        return estimate_kernels(infos, graph.calls, weights, ctx.compiler), graph
    except Exception as error:  # a report may have any defect; the program has none for it
        failures.add("the report of the graph failed, and there is none", error)
        return infos, ModelGraph()


def _apply(
    passes: list[Pass], mod: tvm.IRModule, form: Form, failures: Failures, prefix: str = ""
) -> tvm.IRModule:
    """Return what `passes` make of `mod`; each state of it is dumped, if somebody asked for that, by its pass's name
    with `prefix`."""
    check = checkpoint()
    for apply in passes:
        check()
        name = name_of(apply)
        try:
            with stage(name):
                mod = apply(mod)
        except MemoryError:
            raise
        except Exception as error:  # a pass of ours may have any defect, and TVM's raise whatever their checks raise
            if form is Form.WHOLE or name in _NEEDED:
                raise
            failures.add(f"the pass {name} failed and is left out", error)
        dump(f"{prefix}{name}", mod)
    return mod


def name_of(apply: Pass) -> str:
    """Return what a pass is called in timings, dumps and notes."""
    return str(apply.info.name) if isinstance(apply, tvm.transform.Pass) else str(getattr(apply, "name", apply))
