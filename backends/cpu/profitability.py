"""Whether a kernel is worth making: what the templates say of it before it has loops."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.priority import recognise
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from fusion.declined import Declined
from partition.profitability import no_template


def why_not_taken(kernel: tirx.PrimFunc) -> str:
    """Return why no template writes `kernel`, but the plain loops; "" where one does."""
    try:
        recognise(kernel)
    except Declined as reason:
        return str(reason)
    return ""


def why_not_fused(kernel: tirx.PrimFunc, machine: Machine, threads: int) -> str:
    """Return why a kernel with several anchors is better left in parts; "" where one is faster."""
    try:
        template, parts = recognise(kernel)
        if template.estimate is None:
            return no_template(kernel)
        if template.why_not_fused is None:
            return template.estimate(parts, machine, threads).reason
        return template.why_not_fused(parts, machine, threads)
    except Declined as reason:
        return str(reason)


def estimate_fusion(kernel: tirx.PrimFunc, machine: Machine, threads: int) -> Estimate | None:
    """Return what a kernel with several anchors and its parts are estimated to take; None where no template fuses
    such."""
    try:
        template, parts = recognise(kernel)
        return template.estimate(parts, machine, threads) if template.estimate else None
    except Declined:
        return None
