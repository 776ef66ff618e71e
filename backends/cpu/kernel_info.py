"""What a kernel computes and moves, counted on its unscheduled form."""

from __future__ import annotations

from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call
from tvm.s_tir.stmt import SBlock
from tvm_ffi.structural import structural_walk

from backends.cpu.schedule_kernels import Kernel
from backends.cpu.templates.stages import dtype_of, shape_of
from backends.kernel import KernelInfo
from partition.access import is_static

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)


def kernel_info(name: str, kernel: Kernel) -> KernelInfo:
    """Return the report of one kernel: floating-point operations of all its blocks, bytes of all its parameters.

    Where a shape is symbolic both are 0.
    """
    blocks: list[SBlock] = []
    structural_walk(kernel.source.body, (SBlock, blocks.append))
    blocks = [block for block in blocks if block.iter_vars]
    ops = tuple(str(block.name_hint).removeprefix("T_") for block in reversed(blocks))
    if not is_static(kernel.source):
        return KernelInfo(name, ops, kernel.made.template, kernel.made.tile, 0, 0)
    flops = sum(_operations(block) * prod(int(axis.dom.extent) for axis in block.iter_vars) for block in blocks)
    moved = sum(_bytes(param) for param in kernel.source.params)
    return KernelInfo(name, ops, kernel.made.template, kernel.made.tile, flops, moved)


def _operations(block: SBlock) -> int:
    """Count the floating-point operations of one iteration; a math call counts as one."""
    found: list[Any] = []
    for node in (*_ARITHMETIC, Call):
        structural_walk(block.body, (node, lambda expr: found.append(expr) if "float" in str(expr.ty) else None))
    return len(found)


def _bytes(buffer: tirx.Buffer) -> int:
    width = tirx.const(0, dtype_of(buffer)).ty.dtype
    return prod(shape_of(buffer)) * ((int(width.bits) + 7) // 8)
