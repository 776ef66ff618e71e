"""What the cost tables say of a chain."""

from __future__ import annotations

from dataclasses import dataclass

import onnx
from tvm import tirx

from backends.tensorir.estimate import Estimate
from fusion import context, pipeline
from fusion.frontends import import_model


@dataclass(frozen=True)
class ChainVerdict:
    """Which form fusion chooses, and why.

    Attributes:
        fused: Whether a kernel has several anchors.
        estimates: Of every chain that a template takes.
        reasons: Why what could not share a kernel does not.
    """

    fused: bool
    estimates: tuple[Estimate, ...]
    reasons: tuple[str, ...]

    @property
    def together(self) -> float:
        """Cycles of the chains, each in one kernel, with the margin that it needs; 0 where no template takes one."""
        return sum(found.weighed for found in self.estimates)

    @property
    def apart(self) -> float:
        """Cycles of the chains, each in several kernels."""
        return sum(found.apart for found in self.estimates)


def verdict(model: onnx.ModelProto, threads: int) -> ChainVerdict:
    """Return what is said of `model`, of which no code is made."""
    ctx = context.resolve(threads=threads)
    found: list[tuple[str, Estimate | None]] = []

    def listen(kernel: tirx.PrimFunc) -> str:
        reason = ctx.compiler.why_not_fused(kernel)
        found.append((reason, ctx.compiler.estimate_fusion(kernel)))
        return reason

    lowered = pipeline.lower(import_model(model, strict=True), ctx, why_not_fused=listen)
    kept = [edge.reason for edge in lowered.graph.kept]
    return ChainVerdict(
        any(not reason for reason, _ in found),
        tuple(one for _, one in found if one is not None),
        tuple(dict.fromkeys([*(reason for reason, _ in found if reason), *kept])),
    )
