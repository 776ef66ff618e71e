"""The kernels with two anchors: what reads each, and what judges whether it is the faster form."""

from __future__ import annotations

from tvm import tirx

from backends.cpu.anchors import attention_plan
from backends.cpu.anchors.attention_stages import AttentionStages, read_attention
from backends.cpu.anchors.depthwise import DEPTHWISE
from backends.cpu.anchors.matmul import PACKED
from backends.cpu.anchors.pointwise_depthwise_plan import judge_pair
from backends.cpu.anchors.pointwise_depthwise_stages import PairStages, read_pair
from backends.cpu.anchors.roles import find_anchors
from fusion.context import Machine
from partition.access import ANCHOR
from partition.chains import Judge


def read_chain(func: tirx.PrimFunc) -> AttentionStages | PairStages:
    """Return the parts of a kernel with two anchors.

    Raises:
        NotRecognized: It has a form that no template takes.
    """
    return read_pair(func) if _is_pair(func) else read_attention(func)


def judge(machine: Machine, threads: int) -> Judge:
    """Return what says why a chain is better left in parts."""
    pair, attention = judge_pair(machine, threads), attention_plan.judge(machine, threads)
    return lambda kernel: pair(kernel) if _is_pair(kernel) else attention(kernel)


def _is_pair(func: tirx.PrimFunc) -> bool:
    return [str(anchor.annotations[ANCHOR]) for anchor in find_anchors(func)] == [PACKED, DEPTHWISE]
