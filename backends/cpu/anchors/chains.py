"""The kernels with two anchors: what reads each, and what judges whether it is the faster form."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.anchors import attention_plan, pointwise_depthwise_plan
from backends.cpu.anchors.attention_plan import Demand
from backends.cpu.anchors.attention_stages import AttentionStages, read_attention
from backends.cpu.anchors.pointwise_depthwise_stages import PairStages, is_pair, read_pair
from backends.cpu.templates.result import NotRecognized
from fusion.context import Machine
from partition.chains import Judge


def read_chain(func: tirx.PrimFunc) -> AttentionStages | PairStages:
    """Return the parts of a kernel with two anchors.

    Raises:
        NotRecognized: It has a form that no template takes.
    """
    return read_pair(func) if is_pair(func) else read_attention(func)


def judge(machine: Machine, threads: int) -> Judge:
    """Return what says why a chain is better left in parts."""

    def decline(kernel: tirx.PrimFunc) -> str:
        try:
            parts = read_chain(kernel)
            if isinstance(parts, PairStages):
                return pointwise_depthwise_plan.decline_one_kernel(parts.sizes, machine, threads)
            return attention_plan.decline_one_kernel(Demand.of(parts), machine, threads)
        except NotRecognized as reason:
            return str(reason)

    return decline
