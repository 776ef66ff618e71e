"""A model compiled for concrete input shapes: its program and everything known of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backends.kernel import KernelInfo
from fusion.module.program import Program
from fusion.signature import FallbackNode, TensorSpec

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
