"""From a lowered model to a program that is ready to run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fusion.context import Context
from fusion.extents import Extent
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.build import Built, build
from fusion.module.fallback_program import FallbackProgram, register_fallbacks
from fusion.module.foreign_program import ForeignProgram
from fusion.module.linker import link
from fusion.module.open_plan import OpenRunPlan
from fusion.module.open_program import OpenProgram
from fusion.module.plan import Argument, RunPlan, TensorPlan
from fusion.module.program import KernelProgram, Program
from fusion.module.settings import refusal, settings_of
from fusion.module.share_weights import share_weights
from fusion.module.specialization import Code, Specialization
from fusion.module.specialize_device import specialize_device
from fusion.runtime import Tensor
from fusion.signature import TensorSpec
from fusion.symbolic.open_model import OpenModel

Signature = tuple[TensorSpec, ...]


def specialize(imported: ImportedModel, lowered: Lowered | None, ctx: Context) -> Specialization:
    """Build the program of `imported`; `lowered` is None where it is wholly a fallback."""
    if ctx.compiler.device:
        return specialize_device(imported, lowered, ctx)
    reason = refusal(settings_of(ctx))
    data = {**imported.subgraphs, **(lowered.subgraphs if lowered else {})}
    subgraphs = register_fallbacks(data, ctx.threads)
    if lowered is None:
        program: Program = FallbackProgram(subgraphs[0], imported.inputs) if reason is None else ForeignProgram(reason)
        return Specialization(
            inputs=imported.inputs,
            outputs=imported.outputs,
            program=program,
            code=None,
            kernels={},
            fallbacks=imported.fallbacks,
            subgraphs=data,
            notes=imported.notes,
        )
    graph, weights = lowered.graph, share_weights(lowered.weights)
    built = build(lowered, len(imported.inputs), ctx, to_run=reason is None)
    if reason is None:
        assert built.library is not None
        program = KernelProgram(
            built.library, built.plan, weights=weights, inputs=imported.inputs, threads=ctx.threads, subgraphs=subgraphs
        )
    else:
        program = ForeignProgram(reason)
    return Specialization(
        inputs=imported.inputs,
        outputs=imported.outputs,
        program=program,
        code=_code(built, weights, ctx),
        kernels=lowered.kernels,
        fallbacks=imported.fallbacks,
        subgraphs=data,
        notes=(*imported.notes, *lowered.notes, *built.notes),
        graph=lambda: graph,
    )


def specialize_open(model: OpenModel, inputs: Signature, outputs: Signature, ctx: Context) -> Specialization:
    """Build the program of `model`, which runs at all sizes it takes of the dimensions that its `inputs` leave open."""
    inputs = model.dims.bind(inputs)
    built = build(model.lowered, len(inputs) + len(model.weights), ctx, sizes=model.fit.probes)
    assert built.library is not None
    graph, weights = model.lowered.graph, share_weights(model.lowered.weights)
    plan = join_plans(built.plan, built.others, model)
    return Specialization(
        inputs=inputs,
        outputs=outputs,
        program=OpenProgram(built.library, plan, weights, inputs=inputs, threads=ctx.threads),
        code=replace(_code(built, weights, ctx), opened=plan),
        kernels=model.lowered.kernels,
        fallbacks=(),
        subgraphs={},
        notes=(*_notes_of_sizes(model), *model.lowered.notes, *built.notes),
        graph=lambda: graph,
        is_limited=model.is_limited,
    )


def _notes_of_sizes(model: OpenModel) -> tuple[str, ...]:
    if not model.reason:
        return ()
    return (f"it is for sizes like those of the first call: {model.reason}",)


def join_plans(typical: RunPlan, others: Sequence[RunPlan], model: OpenModel) -> OpenRunPlan:
    """Return the plan of `model` for all sizes, of those at its probes."""
    plans = (typical, *others)

    def shapes(tensors: Sequence[Sequence[TensorPlan | Argument]]) -> tuple[tuple[Extent, ...], ...]:
        at_probes = zip(*([tensor.shape for tensor in each] for each in tensors), strict=True)
        return tuple(tuple(map(model.fit.extent, zip(*each, strict=True))) for each in at_probes)

    calls = zip(*(plan.calls for plan in plans), strict=True)
    return OpenRunPlan(
        typical=typical,
        typical_sizes={symbol: model.fit.probes[0][symbol] for symbol in model.dims.symbols},
        buffers=shapes([plan.buffers for plan in plans]),
        given=shapes([plan.given for plan in plans]),
        arguments=tuple(shapes([call.arguments for call in each]) for each in calls),
        dims=model.dims,
        bounds=model.bounds,
        weights=model.weights,
    )


def _code(built: Built, weights: tuple[Tensor, ...], ctx: Context) -> Code:
    linked, executable, target = built.linked, built.executable, ctx.target
    if linked is None:
        return Code(built.plan, weights, lambda: link(executable, target))
    return Code(built.plan, weights, lambda: linked, linked=True)
