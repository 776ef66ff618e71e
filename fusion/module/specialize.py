"""From a lowered model to a program that is ready to run."""

from __future__ import annotations

from fusion.context import Context
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.build import Built, build
from fusion.module.fallback_program import FallbackProgram, register_fallbacks
from fusion.module.foreign_program import ForeignProgram
from fusion.module.linker import link
from fusion.module.program import KernelProgram, Program
from fusion.module.settings import refusal, settings_of
from fusion.module.share_weights import share_weights
from fusion.module.specialization import Code, Specialization
from fusion.runtime import Tensor


def specialize(imported: ImportedModel, lowered: Lowered | None, ctx: Context) -> Specialization:
    """Build the program of `imported`; `lowered` is None where it is wholly a fallback."""
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


def _code(built: Built, weights: tuple[Tensor, ...], ctx: Context) -> Code:
    linked, executable = built.linked, built.executable
    if linked is None:
        return Code(built.plan, weights, lambda: link(executable, ctx.target))
    return Code(built.plan, weights, lambda: linked, linked=True)
