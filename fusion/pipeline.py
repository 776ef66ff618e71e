"""The order of all passes, as flat lists with one line per pass: those that run on every graph (the model and each
branch in it) by itself, then those that run on all joined into one. The only place that composes passes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import partial
from types import MappingProxyType

import tvm
from tvm import relax, tirx

from backends.backend import KernelCompiler
from backends.kernel import KernelInfo
from backends.sized_work import SizedWork
from backends.tensorir.kernel_info import kernel_info
from backends.tensorir.legalize.sorting import for_open_sizes
from backends.tensorir.legalize_calls import LegalizeCalls
from backends.tensorir.loop_text import loop_lines
from backends.tensorir.lower_anchors import LowerAnchors
from backends.tensorir.result import Kernel, Scheduled
from backends.tensorir.schedule_kernels import ScheduledKernels, ScheduleKernels
from fusion.bindings import Bindings
from fusion.choose_layout import LayoutChoice, by_estimate, with_layout
from fusion.context import Context
from fusion.declined import Declined
from fusion.dump import dump
from fusion.extents import Sizes
from fusion.facts import Facts, PassResult, TellingPass
from fusion.failures import report
from fusion.frontends.branched import join_branches, split_branches
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.lowered_graphs import LoweredGraph, LoweredGraphs
from fusion.measuring import measuring
from fusion.model_graph import ModelGraph
from fusion.options import ROUNDED
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
from fusion.passes.multiply_bytes import MultiplyBytes
from fusion.passes.regions import PlacedRegions, RegionGraph, TakeRegions, read_regions
from fusion.passes.rewrite_reshapes import RewriteReshapes
from fusion.passes.rotate_halves import RotateHalves
from fusion.passes.split_conv3d import SplitConv3d
from fusion.passes.split_conv3d_transpose import SplitConv3dTranspose
from fusion.passes.split_pool3d import SplitPool3d
from fusion.passes.tabulate_bytes import TabulateBytes
from fusion.passes.take_subgraphs import Taken, TakeSubgraphs
from fusion.passes.widen_convolutions import WidenConvolutions
from fusion.passes.widen_half import WidenHalf
from fusion.passes.write_quantizations import WriteQuantizations
from fusion.report.estimate import estimate_kernels
from fusion.report.read_graph import MAIN
from fusion.report.record import notes_of, record_graph
from fusion.rewrites import Rewrite
from fusion.stages import stage
from fusion.system.abandon import checkpoint
from partition.form_groups import FormGroups
from partition.formed import Grouping
from partition.profitability import Profitability
from partition.techniques import ALL, Technique
from tuning.chosen import Chosen

Pass = Callable[[tvm.IRModule], tvm.IRModule]
"""Module -> module. A pass that also reports something is a `TellingPass`."""


class NeedsSizes(Declined):
    """Kernels with symbolic sizes get slower loops than with static ones."""

    def __init__(self, kernels: Mapping[str, str]) -> None:
        """
        Args:
            kernels: By name of a kernel, why no family supports it with symbolic sizes.
        """
        self.kernels = kernels
        (name, reason), *others = kernels.items()
        who = f"{name} and {len(others)} more kernels need" if others else f"kernel {name} needs"
        super().__init__(f"{who} all sizes before the run: {reason}")


class PipelineMode(Enum):
    """Which passes run, and what happens if one raises: `second_forms.py` tries these modes in turn.

    Attributes:
        WHOLE: All passes; an exception ends the compilation.
        SPARING: All passes, but one that raises is skipped if the later ones can do without it.
        PLAIN: A kernel for each operator, in TVM's own form where that is safe; passes that raise are skipped too.
    """

    WHOLE = "whole"
    SPARING = "sparing"
    PLAIN = "plain"


_NO_KERNELS: Mapping[str, Kernel] = MappingProxyType({})
_NEEDED = frozenset(
    {"guard_operands", "lower_einsum", "DecomposeOpsForInference", "call_host_functions", "legalize_calls",
     "inline_branches", "schedule_kernels"}
)  # fmt: skip
"""Passes that cannot be skipped: later ones need what they produce, or a run would access memory out of bounds."""


def passes_before_regions(ctx: Context, techniques: frozenset[Technique] = ALL) -> list[Pass]:
    """Return the passes before `TakeRegions`. Their result is the graph whose regions are offered to graph libraries;
    if there are any, dead code is removed, as it would be offered too."""
    cleaning = [relax.transform.CanonicalizeBindings(), relax.transform.DeadCodeElimination(["main"])]
    return [
        # Phase 1: the graph as it was imported
        GuardOperands(),
        LowerEinsum(),
        *([MultiplyBytes(ctx.compiler.byte_products)] if ctx.compiler.byte_products and not ctx.libraries_only else []),
        FoldConstants(generators=not ctx.opens_sizes),
        *([TabulateBytes(), WriteQuantizations()] if ctx.compiler.byte_products else []),
        WidenHalf(ctx.compiler.rounding),
        *([Rewrite()] if Technique.REWRITES in techniques else []),
        relax.transform.DecomposeOpsForInference(),
        *(cleaning if ctx.graph_libraries else []),
    ]


def preparing_passes(
    ctx: Context, techniques: frozenset[Technique] = ALL, *, reads_as_they_lie: bool = True
) -> list[Pass]:
    """Return the passes before operators become TensorIR. After them the constants are those that kernels will read.

    Args:
        techniques: The kinds of fusion to use.
        reads_as_they_lie: As in `AssignLayouts`.
    """
    return [
        *passes_before_regions(ctx, techniques),
        *([TakeRegions(ctx.graph_libraries, ctx.places, ctx.threads)] if ctx.graph_libraries else []),
        *([TakeSubgraphs(ctx.libraries, ctx.threads)] if ctx.libraries else []),
        # Phase 2: convolutions and pools as our kernels compute them; a library takes them as they are
        WidenConvolutions(),
        SplitConv3d(),
        SplitConv3dTranspose(),
        SplitPool3d(),
        # Phase 3: where each tensor lies
        AssignLayouts(ctx.compiler.layouts, reads_as_they_lie),
        *([LowerPrecision(ctx.compiler.rounding)] if ctx.precision == "bf16" else []),
        RotateHalves(),
        MergeEqual(),
        relax.transform.CanonicalizeBindings(),
    ]


def operator_passes(
    ctx: Context, techniques: frozenset[Technique] = ALL, *, reads_as_they_lie: bool = True
) -> list[Pass]:
    """Return the first passes over an imported module, or a branch: up to a PrimFunc for each operator.

    Args:
        techniques: The kinds of fusion to use.
        reads_as_they_lie: As in `AssignLayouts`.
    """
    compiler = ctx.compiler
    return [
        *preparing_passes(ctx, techniques, reads_as_they_lie=reads_as_they_lie),
        # Phase 4: operators become TensorIR
        CallHostFunctions(),
        LowerAnchors(compiler.lowerings),
        LegalizeCalls(
            for_open_sizes(compiler.legalizations) if ctx.opens_sizes else compiler.legalizations,
            compiler.safe_legalizations,
        ),
        relax.transform.DeadCodeElimination(["main"]),  # a value that nobody reads would be a reader of others
    ]


def group_passes(
    ctx: Context,
    why_not_fused: Profitability,
    techniques: frozenset[Technique] = ALL,
    like: Grouping | None = None,
    *,
    joins_apart: bool = False,
) -> list[Pass]:
    """Return the passes behind `operator_passes`: groups of operators become kernels.

    Args:
        why_not_fused: Says why a kernel with several anchors is slower than its parts.
        techniques: The kinds of fusion to use.
        like: The groups to form, if they are given; the best ones otherwise.
        joins_apart: Whether concatenations stay kernels of their own.
    """
    compiler = ctx.compiler
    concats = Technique.STITCHING in techniques and not joins_apart
    return [
        # Phase 5: groups become kernels
        FormGroups(why_not_fused, techniques, compiler.memory.start, like),
        relax.transform.FuseTIR(),
        RewriteReshapes(),
        relax.transform.DeadCodeElimination(["main"]),
        *([PlaceConcats(compiler.why_not_taken, compiler.memory)] if concats else []),
    ]


def plain_passes(ctx: Context) -> list[Pass]:
    """Return the passes of `PipelineMode.PLAIN`, which lower each operator by itself, to PrimFuncs that are safe to
    run."""
    safe = ctx.compiler.safe_legalizations
    return [
        GuardOperands(),
        LowerEinsum(),
        FoldConstants(),
        relax.transform.DecomposeOpsForInference(),
        CallHostFunctions(),
        relax.backend.DispatchSortScan(),
        LegalizeCalls(safe, safe),
        relax.transform.DeadCodeElimination(["main"]),
    ]


def joining_passes(branches: Mapping[str, tvm.IRModule], measure: Sequence[Pass] = ()) -> list[Pass]:
    """Return the passes that join a module with its lowered `branches`, and then `measure` the candidates of its
    kernels. `ScheduleKernels` runs last, with what they chose."""
    return [
        # Phase 6: one function
        InlineBranches(branches),
        *measure,
    ]


@stage("passes")
def lower(
    imported: ImportedModel,
    ctx: Context,
    techniques: frozenset[Technique] = ALL,
    why_not_fused: Profitability | None = None,
    mode: PipelineMode = PipelineMode.WHOLE,
) -> Lowered:
    """Lower an imported model to scheduled PrimFuncs and the calls between them, for the target of `ctx`.

    Args:
        techniques: The kinds of fusion to use; all of them except in ablations.
        why_not_fused: Says why a kernel with several anchors is slower than its parts; by default the cost tables, or
            what has been measured.
        mode: Which passes run.
    """
    with ctx.target, measuring(ctx) as measured:
        graphs = {}
        for name, mod in {**imported.branches, MAIN: imported.mod}.items():
            dump(f"{name}.imported" if name else "imported", mod)
            apply = _Apply(mode, f"{name}." if name else "")
            if mode is PipelineMode.PLAIN:
                graphs[name] = apply(plain_passes(ctx), mod)
            else:
                operators = partial(operator_passes, ctx, techniques)
                groups = group_passes(ctx, why_not_fused or measured.profitability(), techniques)
                graphs[name] = _lower_alone(mod, apply, operators, groups, measured.layout()).grouped
        apply = _Apply(mode)
        branches = {name: graph.mod for name, graph in graphs.items()}
        joined = apply(joining_passes(branches, measured.passes(imported.inputs)), branches[MAIN])
        chosen = joined.fact.get(Chosen)
        schedule = partial(ctx.compiler.schedule, plain=mode is PipelineMode.PLAIN)
        kernels = ScheduleKernels(schedule, chosen.points, name_sources=ctx.cache is not None, writer=ctx.writer)
        scheduled = apply([kernels], joined.mod)
    with stage("lift_weights"):
        mod, weights = lift_weights(scheduled.mod)
    made = _Made(imported, graphs, mod, weights, scheduled.fact.get(ScheduledKernels))
    with stage("report"):
        reported = made.report(ctx.compiler)
    rounded = ROUNDED.get(ctx.precision)
    rounding = (f"matmuls and convolutions take operands in {rounded}",) if rounded else ()
    failed = (failure for part in (*graphs.values(), joined, scheduled) for failure in part.failures)
    failures = dict.fromkeys((*failed, *reported.failures))
    notes = (*failures, *ctx.skipped, *rounding, *made.notes(), *measured.notes(), *chosen.notes)
    return Lowered(
        mod=mod,
        weights=weights,
        kernels=reported.kernels,
        notes=notes,
        graph=reported.graph,
        subgraphs=made.subgraphs(),
        sources={name: kernel.source for name, kernel in made.kernels.by_name.items()},
        seconds=chosen.seconds,
    )


def _lower_alone(
    mod: tvm.IRModule, apply: _Apply, operators: Callable[..., list[Pass]], groups: list[Pass], choose: LayoutChoice
) -> LoweredGraph:
    """Lower a graph, or a branch, by itself.

    Args:
        operators: Returns `operator_passes`, given `reads_as_they_lie`.
        groups: `group_passes`.
        choose: Chooses between layouts where there are two.
    """

    def lower_with(lying: bool) -> LoweredGraph:
        ungrouped = apply(operators(reads_as_they_lie=lying), mod)
        return LoweredGraph(ungrouped, apply.behind(ungrouped, groups))

    return with_layout(lower_with, choose)


@stage("read regions")
def regions_of(mod: tvm.IRModule, ctx: Context) -> RegionGraph:
    """Return the graph of `mod` whose regions are offered to libraries."""
    with ctx.target:
        found = read_regions(_Apply(PipelineMode.WHOLE)(passes_before_regions(ctx), mod).mod)
    bindings = Bindings.of(mod["main"])
    result = bindings.resolve(bindings.result)
    renamed = isinstance(result, relax.Var) and isinstance(found.result, relax.Var)
    return replace(found, origins={found.result.name: result.name}) if renamed else found


@stage("passes")
def prepare_graph(mod: tvm.IRModule, ctx: Context, lying: Mapping[str, bool]) -> tvm.IRModule:
    """Return `mod`, with the branches in it, after `preparing_passes`: before operators become TensorIR.

    Args:
        lying: For each graph, whether products read tensors as they lie.
    """
    main, branches = split_branches(mod)
    with ctx.target:
        made = {
            name: _Apply(PipelineMode.WHOLE)(preparing_passes(ctx, reads_as_they_lie=lying[name]), each).mod
            for name, each in {**branches, MAIN: main}.items()
        }
    return join_branches(made.pop(MAIN), made)


@stage("passes")
def lower_graph(
    mod: tvm.IRModule,
    ctx: Context,
    why_not_fused: Profitability | None = None,
    choose_layout: LayoutChoice | None = None,
) -> LoweredGraphs:
    """Lower `mod`, with the branches in it, to PrimFuncs and the calls between them, not scheduled yet.

    Args:
        why_not_fused: Says why a kernel with several anchors is slower than its parts; by default the cost tables do.
        choose_layout: Chooses between layouts; by default, by estimate.
    """
    main, branches = split_branches(mod)
    apply, groups = _Apply(PipelineMode.WHOLE), group_passes(ctx, why_not_fused or ctx.compiler.why_not_fused)
    choose = choose_layout or by_estimate(ctx.compiler)
    with ctx.target:
        graphs = {
            name: _lower_alone(each, apply, partial(operator_passes, ctx), groups, choose)
            for name, each in {**branches, MAIN: main}.items()
        }
        return _joined(graphs)


@stage("passes")
def lower_like(mod: tvm.IRModule, ctx: Context, like: LoweredGraphs) -> LoweredGraphs:
    """Lower `mod`, as `lower_graph` does, in the layouts and groups of `like`, the same model at other sizes."""
    main, branches = split_branches(mod)
    with ctx.target:
        ungrouped = {
            name: _Apply(PipelineMode.WHOLE)(operator_passes(ctx, reads_as_they_lie=like.lying[name]), each)
            for name, each in {**branches, MAIN: main}.items()
        }
    return group_graphs(ungrouped, ctx, like.groups, joins_apart=not like.joins_in_place)


@stage("passes")
def group_graphs(
    ungrouped: Mapping[str, PassResult[Facts]], ctx: Context, like: Mapping[str, Grouping], *, joins_apart: bool
) -> LoweredGraphs:
    """Group the operators of graphs, and join these.

    Args:
        ungrouped: By name, with a PrimFunc for each operator.
        like: By graph, the groups to form: those of the same graph at other sizes.
        joins_apart: Whether concatenations stay kernels of their own.
    """
    apply = _Apply(PipelineMode.WHOLE)

    def grouped(each: PassResult[Facts], like: Grouping) -> LoweredGraph:
        passes = group_passes(ctx, ctx.compiler.why_not_fused, like=like, joins_apart=joins_apart)
        return LoweredGraph(each, apply.behind(each, passes))

    with ctx.target:
        return _joined({name: grouped(each, like[name]) for name, each in ungrouped.items()})


def _joined(graphs: Mapping[str, LoweredGraph]) -> LoweredGraphs:
    lowered = {name: graph.grouped.mod for name, graph in graphs.items()}
    joined = _Apply(PipelineMode.WHOLE)(joining_passes(lowered), lowered[MAIN])
    return LoweredGraphs(joined.mod, graphs)


@stage("passes")
@stage("schedule_kernels")
def begin_kernel(name: str, func: tirx.PrimFunc, ctx: Context) -> Kernel:
    """Schedule a kernel with symbolic sizes, and begin to compile it in the background."""
    checkpoint()()
    with ctx.target:
        return _schedule_open(ctx).kernel(name, func)


def _schedule_open(ctx: Context, known: Mapping[str, Kernel] = _NO_KERNELS) -> ScheduleKernels:
    sources = ctx.cache is not None
    return ScheduleKernels(ctx.compiler.schedule, name_sources=sources, writer=ctx.writer, known=known)


def needs_sizes(made: Scheduled, static: Sequence[tirx.PrimFunc], ctx: Context) -> bool:
    """Return whether a kernel with symbolic sizes got plain loops although one of its `static` forms gets better
    ones."""
    return made.is_last_resort and not all(ctx.compiler.schedule(func).is_last_resort for func in static)


@stage("passes")
def lower_open(
    mod: tvm.IRModule,
    ctx: Context,
    imported: tvm.IRModule,
    seen: LoweredGraphs,
    *,
    other: tvm.IRModule,
    work: OpenWork,
    known: Mapping[str, Kernel] = _NO_KERNELS,
) -> Lowered:
    """Schedule the kernels of a module with symbolic sizes.

    Args:
        mod: A module of `lower_graph`, with symbols in place of sizes.
        imported: The model at typical sizes before any pass, which reports show.
        seen: What `lower_graph` returned for that.
        other: Its module at other sizes.
        work: The operations and memory traffic of kernels, as functions of the sizes.
        known: Kernels that are scheduled already, by name.

    Raises:
        NeedsSizes: Kernels would get slower loops than with static sizes.
    """
    with ctx.target:
        scheduled = _Apply(PipelineMode.WHOLE)([_schedule_open(ctx, known)], mod)
        made = scheduled.fact.get(ScheduledKernels)
        slow = {
            name: kernel.made.note
            for name, kernel in made.by_name.items()
            if needs_sizes(kernel.made, [form[name] for form in (seen.mod, other)], ctx)
        }
    if slow:
        raise NeedsSizes(slow)
    with stage("lift_weights"):
        lifted, weights = lift_weights(scheduled.mod)
    with stage("report"):
        main, branches = split_branches(imported)
        typical = _Made(
            ImportedModel(main, (), (), branches=branches), seen.graphs, *lift_weights(seen.mod), made, work
        )
        reported = typical.report(ctx.compiler)
    notes = (*reported.failures, *ctx.skipped, *typical.notes())
    return Lowered(lifted, weights, reported.kernels, notes=notes, graph=reported.graph)


@dataclass(frozen=True)
class OpenWork:
    """The work of kernels with symbolic sizes.

    Attributes:
        by_kernel: By name, operations and memory traffic as functions of the sizes, where they are known.
        typical_sizes: The sizes that reports show.
    """

    by_kernel: Mapping[str, SizedWork] = field(default_factory=dict)
    typical_sizes: Sizes = field(default_factory=dict)


@dataclass(frozen=True)
class _Report:
    """What `explain()` says of each kernel, and of the graph before and after; `failures` says what could not be
    reported."""

    kernels: Mapping[str, KernelInfo]
    graph: ModelGraph
    failures: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Made:
    """What the passes made of a model and reported, from which the report is written.

    Attributes:
        graphs: The result for each graph by itself.
        mod: All of them joined, without weights.
        weights: The values of its parameters after the inputs.
        kernels: Its kernels.
        work: The work of kernels with symbolic sizes, for which `mod` has typical ones.
    """

    imported: ImportedModel
    graphs: Mapping[str, PassResult[Facts]]
    mod: tvm.IRModule
    weights: tuple[tvm.runtime.Tensor, ...]
    kernels: ScheduledKernels
    work: OpenWork = OpenWork()

    def report(self, compiler: KernelCompiler) -> _Report:
        """Return what `explain()` says of each kernel, and of the graph before and after."""
        infos = {
            name: kernel_info(name, kernel, self.work.by_kernel.get(name), self.work.typical_sizes)
            for name, kernel in self.kernels.by_name.items()
        }
        graph, failures = self.graph()
        try:
            return _Report(estimate_kernels(infos, graph.calls, self.weights, compiler), graph, failures)
        except Exception as error:  # as in `graph`
            return _Report(infos, graph, (*failures, report("kernels have no estimates, as that failed", error)))

    def graph(self) -> tuple[ModelGraph, tuple[str, ...]]:
        """Return the graph before and after; if that fails, an empty one and the reason."""
        loops = {name: loop_lines(kernel.made.func) for name, kernel in self.kernels.by_name.items()}
        try:
            return record_graph(self.imported, self.graphs, self.mod, loops), ()
        except Exception as error:  # a defect of the report is none of the program
            return ModelGraph(), (report("the report of the graph failed, and there is none", error),)

    def notes(self) -> list[str]:
        """Return what passes did and declined to do, a sentence each."""
        imported = {**self.imported.branches, MAIN: self.imported.mod}
        told = [note for name, graph in self.graphs.items() for note in notes_of(graph.fact, imported[name])]
        return [*told, *self.kernels.notes()]

    def subgraphs(self) -> dict[str, bytes]:
        """Return the subgraphs that libraries run, serialised, by key."""
        kinds: tuple[type[Taken | PlacedRegions], ...] = (Taken, PlacedRegions)
        taken = (graph.fact.get(kind) for graph in self.graphs.values() for kind in kinds)
        return {key: data for each in taken for key, data in each.subgraphs.items()}


@dataclass(frozen=True)
class _Apply:
    """Applies passes in order.

    Attributes:
        mode: Decides whether a pass that raises is skipped.
        prefix: The prefix of the names of dumps.
    """

    mode: PipelineMode
    prefix: str = ""

    def __call__(self, passes: list[Pass], mod: tvm.IRModule) -> PassResult[Facts]:
        """Return `mod` after `passes`, what they reported, and which were skipped. The module after each pass is dumped
        under the name of the pass, if dumps were asked for."""
        check, facts, failures = checkpoint(), Facts(), list[str]()
        for apply in passes:
            check()
            name = name_of(apply)
            try:
                with stage(name):
                    result = apply.run(mod) if isinstance(apply, TellingPass) else PassResult(apply(mod), None)
                mod = result.mod
                facts = facts if result.fact is None else facts.add(result.fact)
                failures += result.failures
            except MemoryError:
                raise
            except Exception as error:  # a pass may have any defect, and TVM raises many types
                if self.mode is PipelineMode.WHOLE or name in _NEEDED:
                    raise
                failures.append(report(f"the pass {name} failed and is left out", error))
            dump(f"{self.prefix}{name}", mod)
        return PassResult(mod, facts, tuple(failures))

    def behind(self, made: PassResult[Facts], passes: list[Pass]) -> PassResult[Facts]:
        """Apply `passes` to what others have `made`; the result has what all of them reported."""
        more = self(passes, made.mod)
        return PassResult(more.mod, Facts((*made.fact.told, *more.fact.told)), (*made.failures, *more.failures))


def name_of(apply: Pass) -> str:
    """Return the name of a pass in timings, dumps and notes."""
    return str(apply.info.name) if isinstance(apply, tvm.transform.Pass) else str(getattr(apply, "name", apply))
