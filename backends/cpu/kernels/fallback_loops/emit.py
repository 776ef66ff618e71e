"""The schedule of last resort: right for every PrimFunc, and parallel where that is plainly legal."""

from __future__ import annotations

from tvm import s_tir, tirx

from backends.cpu.kernels.fallback_loops.plan import PlainLoops
from backends.cpu.machine import Machine
from backends.tensorir.result import Scheduled
from fusion.failures import last_line

FALLBACK_LOOPS = "fallback_loops"


def emit_plain(func: tirx.PrimFunc, _: tirx.PrimFunc, machine: Machine, point: PlainLoops) -> Scheduled:
    """Return a schedule of `func`, or `func` itself where no primitive applies: what can be is inlined, then each block
    is `for outer in T.parallel: ...`."""
    try:
        schedule = s_tir.Schedule(func)
        root = schedule.get_sblock("root")
        blocks = schedule.get_child_blocks(root)
    except Exception as reason:
        return Scheduled(func, FALLBACK_LOOPS, f"unscheduled: {last_line(reason)}")
    if any(not schedule.get(block).writes for block in blocks):
        return Scheduled(func, FALLBACK_LOOPS, "unscheduled: a block does not declare what it writes")
    for block in blocks:
        _inline(schedule, block)
    for block in schedule.get_child_blocks(root):
        _parallelize(schedule, block, point.threads)
    return Scheduled(schedule.mod["main"].with_attrs(func.attrs), FALLBACK_LOOPS, "block by block")


def _inline(schedule: s_tir.Schedule, block: s_tir.schedule.SBlockRV) -> None:
    try:
        schedule.compute_inline(block)
    except s_tir.ScheduleError:
        return  # a reduction, an output, or a block of several stores: it stays


def _parallelize(schedule: s_tir.Schedule, block: s_tir.schedule.SBlockRV, threads: int) -> None:
    try:
        loops = schedule.get_loops(block)
        if loops and threads > 1:
            schedule.parallel(loops[0])
    except s_tir.ScheduleError:
        return  # the outermost loop carries a dependency: it stays serial
