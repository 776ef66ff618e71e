"""Loops of kernels without an anchor: `schedule_memory_bound` tries the templates in order; the last one takes all."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.templates.fallback_loops import FallbackLoops
from backends.cpu.templates.result import Declined, Scheduled, Template
from backends.cpu.templates.stitching import StitchStages
from backends.cpu.vector_math import VectorizeMath
from fusion.context import Machine

TEMPLATES: tuple[Template, ...] = (StitchStages(), FallbackLoops())


def schedule_memory_bound(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops of the first template that does not decline, its math calls made vectorisable."""
    for template in TEMPLATES:
        result = template.apply(func, machine, threads)
        if not isinstance(result, Declined):
            return Scheduled(VectorizeMath()(result.func), result.template, result.tile)
    raise AssertionError("FallbackLoops declines nothing")
