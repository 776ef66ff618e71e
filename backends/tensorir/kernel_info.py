"""What a kernel computes and moves, counted on its unscheduled form."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from types import MappingProxyType
from typing import Any

from tvm import tirx
from tvm.ir import Call, TensorLoad
from tvm.s_tir.stmt import SBlock

from backends.kernel import KernelInfo
from backends.sized_work import SizedCount, SizedWork, Traffic
from backends.tensorir.inlining import is_branch
from backends.tensorir.result import Kernel
from backends.tensorir.roles import anchor_of
from backends.tensorir.stages import dtype_of, shape_of
from fusion.extents import Extent, Sizes
from fusion.structural import walk
from partition.access import computed_blocks, is_static

_Accesses = defaultdict[Any, list[SizedCount]]
"""By tensor."""
_NO_SIZES: Sizes = MappingProxyType({})
_ARITHMETIC = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.Max, tirx.Min)


def kernel_info(name: str, kernel: Kernel, sized: SizedWork | None = None, sizes: Sizes = _NO_SIZES) -> KernelInfo:
    """Return the report of one kernel: floating-point operations of all its blocks, bytes of all its parameters.

    Args:
        sized: Of one whose shapes have symbols; None where that is not known, and all are 0.
        sizes: Of these symbols, for the report.
    """
    made, blocks = kernel.made, computed_blocks(kernel.source)
    work = count_work(kernel.source) if is_static(kernel.source) else sized
    written = 0 if work is None else work.bytes_at(sizes, written=True)
    return KernelInfo(
        name=name,
        ops=tuple(str(block.name_hint).removeprefix("T_") for block in blocks),
        work=_kind(blocks),
        template=made.template,
        tile=made.tile,
        flops=0 if work is None else work.flops_at(sizes),
        bytes=0 if work is None else work.bytes_at(sizes, written=False) + written,
        written=written,
        cycles=made.cycles,
        note=made.note,
        sized=sized,
    )


def count_work(func: tirx.PrimFunc) -> SizedWork:
    """Return what a kernel without symbols does, before it got loops."""
    flops, loads, stores = list[SizedCount](), _Accesses(list), _Accesses(list)
    for block in computed_blocks(func):
        operations, loaded = _work(block)
        iterations = _extents(block.iter_vars)
        flops.append(SizedCount(operations, iterations))
        written = _extents([axis for axis in block.iter_vars if axis.iter_type == tirx.IterVar.DataPar])
        for source in {region.source for region in block.writes}:
            stores[source].append(SizedCount(_width(source), written))
        for source, count in loaded.items():
            loads[source].append(SizedCount(count * _width(source), iterations))
    return SizedWork(tuple(flops), tuple(_traffic(param, loads, stores) for param in func.params))


def _traffic(param: tirx.Buffer, loads: _Accesses, stores: _Accesses) -> Traffic:
    whole = SizedCount(_width(param), tuple(map(Extent, shape_of(param))))
    accessed = stores.get(param, loads.get(param, []))
    return Traffic(whole, tuple(accessed), param in stores)


def _extents(axes: Iterable[tirx.IterVar]) -> tuple[Extent, ...]:
    return tuple(Extent(int(axis.dom.extent)) for axis in axes)


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


def _width(buffer: tirx.Buffer) -> int:
    """Return the bytes of an element."""
    return (int(tirx.const(0, dtype_of(buffer)).ty.dtype.bits) + 7) // 8
