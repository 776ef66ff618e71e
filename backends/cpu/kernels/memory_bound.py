"""Loops of kernels without an anchor: `schedule_memory_bound` tries the templates in order; the last one takes all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tvm import tirx

from backends.cpu.kernels.fallback_loops.emit import FallbackLoops
from backends.cpu.kernels.stitch_stages.emit import StitchStages
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.vector_math import VectorizeMath
from backends.tensorir.result import Scheduled
from fusion.failures import cause

_AVX512_LANES = 16

TEMPLATES: tuple[Template, ...] = (StitchStages(), FallbackLoops())


def schedule_memory_bound(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of the first template that does not decline, its math calls made vectorisable."""
    return schedule_with(TEMPLATES, func, machine, threads)


def schedule_with(templates: Sequence[Template], func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of the first of `templates` that takes `func`; the note says why those before it did not.

    A template that fails is one that declines: no kernel ends a compilation, as TVM runs an unscheduled one too.
    """
    refusals: list[str] = []
    for template in templates:
        try:
            result = template.apply(func, machine, threads)
            if isinstance(result, Scheduled):
                math = VectorizeMath(has_scalef=machine.vector_lanes == _AVX512_LANES)
                return replace(result, func=math(result.func), note="; ".join(refusals))
            refusals.append(f"{template.name} declined: {result.reason}")
        except MemoryError:
            raise
        except Exception as failure:  # TVM raises whatever its checks raise
            refusals.append(f"{template.name} failed: {cause(failure)}")
    return Scheduled(func, "unscheduled", "as TVM lowers it", "; ".join(refusals))
