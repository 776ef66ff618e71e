"""The kernels with anchors: what reads each, and what judges whether one with several is the faster form."""

from __future__ import annotations

from types import ModuleType

from tvm import tirx

from backends.cpu.kernels.attention import plan as attention_plan
from backends.cpu.kernels.attention.plan import Demand
from backends.cpu.kernels.attention.read import AttentionStages, read_attention
from backends.cpu.kernels.conv_chain import plan as conv_chain_plan
from backends.cpu.kernels.conv_chain.read import ChainStages, has_chain_form, read_conv_chain
from backends.cpu.kernels.matmul import plan as row_products_plan
from backends.cpu.kernels.matmul.read import RowProducts, read_row_products
from backends.cpu.kernels.rolling_window import plan as rolling_window_plan
from backends.cpu.kernels.rolling_window.read import (
    RollingStages,
    has_rolling_form,
    read_rolling_window,
)
from backends.cpu.machine import Machine
from backends.tensorir.estimate import Estimate
from backends.tensorir.result import NotRecognized
from backends.tensorir.roles import Roles, find_anchors, read_roles
from backends.tensorir.stages import read_stages
from partition.access import ANCHOR, MATMUL
from partition.profitability import no_template


def read_kernel(func: tirx.PrimFunc) -> Roles | RowProducts | AttentionStages | RollingStages | ChainStages:
    """Return the parts of a kernel with anchors.

    Raises:
        NotRecognized: It has a form that no template takes.
    """
    if has_rolling_form(func):
        return read_rolling_window(func)
    if has_chain_form(func):
        return read_conv_chain(func)
    kinds = [str(anchor.annotations[ANCHOR]) for anchor in find_anchors(func)]
    if set(kinds) == {MATMUL}:
        return read_row_products(func)
    return read_roles(func) if len(kinds) == 1 else read_attention(func)


def estimate(kernel: tirx.PrimFunc, machine: Machine, threads: int) -> Estimate:
    """Return what a kernel with several anchors and its parts are estimated to take.

    Raises:
        NotRecognized: No template takes it.
    """
    plan, sizes = _plan_of(kernel)
    found: Estimate = plan.estimate(sizes, machine, threads)
    return found


def decline_fusion(kernel: tirx.PrimFunc, machine: Machine, threads: int) -> str:
    """Return why a chain is better left in parts; "" where one kernel is faster."""
    try:
        plan, sizes = _plan_of(kernel)
        return str(plan.decline_one_kernel(sizes, machine, threads))
    except NotRecognized as reason:
        return str(reason)


def decline_kernel(func: tirx.PrimFunc) -> str:
    """Return why no template writes `func`, but the plain loops; "" where one does."""
    try:
        if find_anchors(func):
            read_kernel(func)
        else:
            read_stages(func)
    except NotRecognized as reason:
        return str(reason)
    return ""


def _plan_of(kernel: tirx.PrimFunc) -> tuple[ModuleType, RollingStages | ChainStages | Demand | RowProducts]:
    """Return the module that weighs one kernel against several, and what it does so by."""
    match read_kernel(kernel):
        case RollingStages() as rolling:
            return rolling_window_plan, rolling
        case ChainStages() as chain:
            return conv_chain_plan, chain
        case AttentionStages() as attention:
            return attention_plan, Demand.of(attention)
        case RowProducts() as products:
            return row_products_plan, products
        case _:
            raise NotRecognized(no_template(kernel))
