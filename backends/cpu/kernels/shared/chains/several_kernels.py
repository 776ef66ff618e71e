"""Costs of leaving a chain in several kernels."""

from __future__ import annotations

from backends.cpu.costs import L2_BYTES_PER_CYCLE, MEMORY_BYTES_PER_CYCLE
from backends.cpu.kernels.shared.arithmetic import FLOAT32
from backends.cpu.kernels.shared.blocking import choose_blocking
from backends.cpu.kernels.shared.convolution.sum_over_planes import planes_extents
from backends.cpu.kernels.shared.convolution.sum_over_taps import taps_extents
from backends.cpu.kernels.shared.convolution.winograd_plan import plan_winograd, winograd_shape
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.row_product import rows_times
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.roles import Roles
from backends.tensorir.stages import shape_of
from partition.access import CONV2D, IMAGE_CONV2D


def cycles_alone(conv: Roles, machine: Machine, threads: int) -> float:
    """Return what a float32 convolution is estimated to take as a kernel of its own."""
    if conv.kind == CONV2D:
        return _cycles_over_taps(conv, machine, threads)
    return choose_blocking(_extents(conv, machine), machine, threads).cycles


def _cycles_over_taps(conv: Roles, machine: Machine, threads: int) -> float:
    """Return the estimate for the faster of the sum and Winograd's method."""
    data, packed = conv.operands
    window = Window.from_annotation(conv.attrs["window"])
    sizes = (window, shape_of(data), shape_of(packed)[0], conv.shape[3], machine.vector_lanes)
    cycles = choose_blocking(taps_extents(*sizes, FLOAT32), machine, threads).cycles
    shape = winograd_shape(*sizes)
    plan = plan_winograd(shape, machine, threads) if shape else None
    return cycles if plan is None else min(cycles, plan.cycles)


def _extents(conv: Roles, machine: Machine) -> Extents:
    """Return the sizes of a convolution of planes, or of a pointwise one."""
    if conv.kind == IMAGE_CONV2D:
        return planes_extents(conv, machine)
    data, panels = conv.operands
    return rows_times(data, panels, conv.shape[-1], conv.outputs, machine).extents


def passing_cycles(elements: int, machine: Machine, threads: int) -> float:
    """Return what it takes to write float32 elements in one kernel and read them in the next."""
    share = 4 * elements / threads
    return 2 * share / (L2_BYTES_PER_CYCLE if share <= machine.l2_bytes // 2 else MEMORY_BYTES_PER_CYCLE)
