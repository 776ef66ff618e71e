"""From a lowered model to a program that is ready to run."""

from __future__ import annotations

from fusion.context import Context
from fusion.frontends.imported import ImportedModel
from fusion.lowered import Lowered
from fusion.module.build import build
from fusion.module.fallback_program import FallbackProgram, register_fallbacks
from fusion.module.linker import link
from fusion.module.program import KernelProgram, Program
from fusion.module.specialization import Specialization


def specialize(imported: ImportedModel, lowered: Lowered | None, ctx: Context) -> Specialization:
    """Build the program of `imported`; `lowered` is None where it is wholly a fallback."""
    register_fallbacks(imported.subgraphs, ctx.threads)
    if lowered is None:
        (key,) = imported.subgraphs
        program: Program = FallbackProgram(key, imported.inputs)
        return Specialization(
            imported.inputs, imported.outputs, program, bytes, {}, imported.fallbacks, imported.subgraphs, ()
        )
    built = build(lowered, len(imported.inputs), ctx)
    program = KernelProgram(built.library, built.plan, lowered.weights, imported.inputs, ctx.threads)
    return Specialization(
        imported.inputs,
        imported.outputs,
        program,
        lambda: link(built.executable),
        lowered.kernels,
        imported.fallbacks,
        imported.subgraphs,
        (*lowered.notes, *built.notes),
    )
