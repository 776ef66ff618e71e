"""A model compiled for concrete input shapes: its program and everything known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backends.kernel import KernelInfo
from fusion.context import Context
from fusion.frontends.imported import FallbackNode, ImportedModel, TensorSpec
from fusion.lowered import Lowered
from fusion.module.build import build
from fusion.module.fallback_program import FallbackProgram
from fusion.module.linker import link
from fusion.module.program import KernelProgram, Program

Shapes = tuple[tuple[int, ...], ...]


@dataclass(frozen=True)
class Specialization:
    """One compiled form of a model.

    Attributes:
        inputs, outputs: The signature, without unknown dimensions where the program is a `KernelProgram`.
        program: What runs.
        machine_code: Returns the shared library's bytes; empty for a model that is wholly a fallback.
        kernels: What is known of each kernel, by name.
        fallbacks, subgraphs: As in `ImportedModel`.
        notes: What passes declined to do, and why.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    program: Program
    machine_code: Callable[[], bytes]
    kernels: dict[str, KernelInfo]
    fallbacks: tuple[FallbackNode, ...]
    subgraphs: dict[str, bytes]
    notes: tuple[str, ...]


def specialize(imported: ImportedModel, lowered: Lowered | None, ctx: Context) -> Specialization:
    """Build the program of `imported`; `lowered` is None where it is wholly a fallback."""
    register_fallbacks(imported.subgraphs, ctx.threads)
    if lowered is None:
        program: Program = whole_fallback(imported.subgraphs, imported.inputs)
        return Specialization(
            imported.inputs, imported.outputs, program, bytes, {}, imported.fallbacks, imported.subgraphs, ()
        )
    built = build(lowered, len(imported.inputs), ctx)
    program = KernelProgram(built.executable.jit(), built.plan, lowered.weights, imported.inputs, ctx.threads)
    return Specialization(
        imported.inputs,
        imported.outputs,
        program,
        lambda: link(built.executable),
        lowered.kernels,
        imported.fallbacks,
        imported.subgraphs,
        lowered.notes,
    )


def whole_fallback(subgraphs: dict[str, bytes], inputs: tuple[TensorSpec, ...]) -> FallbackProgram:
    """Return the program of a model whose only subgraph is the model itself."""
    (key,) = subgraphs
    return FallbackProgram(key, inputs)


def register_fallbacks(subgraphs: dict[str, bytes], threads: int) -> None:
    """Make the fallback subgraphs callable from compiled code."""
    if not subgraphs:
        return
    # ONNX Runtime is imported only where a model needs it.
    from backends.onnxruntime import fallback

    for key, model in subgraphs.items():
        fallback.register(key, model, threads)
