"""What a kernel computes and moves, counted on its unscheduled form."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import prod
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.stmt import SBlock

from backends.kernel import KernelInfo
from backends.tensorir.inlining import is_branch
from backends.tensorir.result import Kernel
from backends.tensorir.roles import anchor_of
from backends.tensorir.stages import dtype_of, shape_of
from fusion.structural import find, walk
from partition.access import is_static

_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)


def kernel_info(name: str, kernel: Kernel) -> KernelInfo:
    """Return the report of one kernel: floating-point operations of all its blocks, bytes of all its parameters.

    Where a shape is symbolic all are 0.
    """
    made = kernel.made
    blocks = [block for block in find(kernel.source.body, SBlock) if block.iter_vars]
    ops = tuple(str(block.name_hint).removeprefix("T_") for block in blocks)
    if not is_static(kernel.source):
        return KernelInfo(
            name=name, ops=ops, work=_kind(blocks), template=made.template, tile=made.tile, flops=0, bytes=0,
            note=made.note,
        )  # fmt: skip
    flops, loads, stored = 0, Counter[Any](), Counter[Any]()
    for block in blocks:
        written = prod(int(axis.dom.extent) for axis in block.iter_vars if axis.iter_type == tirx.IterVar.DataPar)
        stored.update({region.source: written for region in block.writes})
        iterations = prod(int(axis.dom.extent) for axis in block.iter_vars)
        operations, sources = _work(block)
        flops += operations * iterations
        loads.update({source: count * iterations for source, count in sources.items()})
    # What writes a part of a concatenation has all of it as a parameter.
    written = sum(
        min(_bytes(param), stored[param] * _width(param)) for param in kernel.source.params if param in stored
    )
    # A gather reads a few rows of its table.
    read = sum(
        min(_bytes(param), loads[param] * _width(param)) for param in kernel.source.params if param not in stored
    )
    return KernelInfo(
        name=name,
        ops=ops,
        work=_kind(blocks),
        template=made.template,
        tile=made.tile,
        flops=flops,
        bytes=read + written,
        written=written,
        cycles=made.cycles,
        note=made.note,
    )


def _kind(blocks: Sequence[SBlock]) -> str:
    """Return the kind of work of a kernel: sums of products through a window, or without one."""
    anchors = [block.annotations for block in blocks if anchor_of(block)]
    sums = [notes for notes in anchors if not int(notes.get("takes_max", 0))]
    if not sums:
        return "other"
    return "convolution" if any("window" in notes for notes in sums) else "matmul"


def _work(block: SBlock) -> tuple[int, Counter[Any]]:
    """Count the floating-point operations of one iteration, where a math call is one and a choice, as of what lies on a
    padding, none; and the loads of each buffer."""
    found: list[Any] = []
    loads: list[TensorLoad] = []
    entries = [((*_ARITHMETIC, Call), found.append), (TensorLoad, loads.append)]
    walk(block.body, *entries)
    computed = (expr for expr in found if not (isinstance(expr, Call) and is_branch(expr)))
    return sum("float" in str(expr.ty) for expr in computed), Counter(load.source for load in loads)


def _bytes(buffer: tirx.Buffer) -> int:
    return prod(shape_of(buffer)) * _width(buffer)


def _width(buffer: tirx.Buffer) -> int:
    """Return the bytes of an element."""
    return (int(tirx.const(0, dtype_of(buffer)).ty.dtype.bits) + 7) // 8
