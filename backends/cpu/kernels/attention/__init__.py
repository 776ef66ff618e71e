"""Two products of batches with a softmax, other row-wise work or nothing between."""

from __future__ import annotations

from backends.cpu.kernels.attention.emit import emit_attention
from backends.cpu.kernels.attention.emit_open import emit_open_attention
from backends.cpu.kernels.attention.plan import AttentionDemand, attention_space, estimate, why_not_fused
from backends.cpu.kernels.attention.read import ATTENTION, read_attention
from backends.cpu.kernels.template import Template

TEMPLATE = Template(
    name=ATTENTION,
    read=read_attention,
    space=lambda stages, machine, threads: attention_space(AttentionDemand.of(stages), machine, threads),
    emit=emit_attention,
    claims=lambda marks: len(marks.anchors) > 1,
    estimate=lambda stages, machine, threads: estimate(AttentionDemand.of(stages), machine, threads),
    why_not_fused=lambda stages, machine, threads: why_not_fused(AttentionDemand.of(stages), machine, threads),
    emit_open=emit_open_attention,
)
