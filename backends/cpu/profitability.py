"""What the templates say of a kernel before it is scheduled: whether one supports it, and whether fusing it pays."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.kernels.priority import recognise
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from fusion.declined import Declined
from partition.profitability import no_template


def why_not_taken(kernel: tirx.PrimFunc) -> str:
    """Return why no template but plain loops supports `kernel`; "" if one does."""
    try:
        recognise(kernel)
    except Declined as reason:
        return str(reason)
    return ""


def why_not_fused(kernel: tirx.PrimFunc, machine: Machine, threads: int) -> str:
    """Return why a kernel with several anchors is slower than its parts; "" if it is not."""
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
    """Return the estimated times of a kernel with several anchors and of its parts; None if no template fuses them."""
    try:
        template, parts = recognise(kernel)
        return template.estimate(parts, machine, threads) if template.estimate else None
    except Declined:
        return None
