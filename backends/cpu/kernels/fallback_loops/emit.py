"""The schedule of last resort: right for every PrimFunc, and parallel where that is plainly legal."""

from __future__ import annotations

from dataclasses import dataclass

from tvm import s_tir, tirx

from backends.cpu.machine import Machine
from backends.tensorir.result import Scheduled
from fusion.failures import last_line


@dataclass(frozen=True)
class FallbackLoops:
    """Inline what can be inlined, then per block `for outer in T.parallel: ...: for v in T.vectorized`."""

    name: str = "fallback_loops"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
        """Return a schedule of `func`, or `func` itself where no primitive applies."""
        try:
            schedule = s_tir.Schedule(func)
            root = schedule.get_sblock("root")
            blocks = schedule.get_child_blocks(root)
        except Exception as reason:
            return Scheduled(func, self.name, f"unscheduled: {last_line(reason)}")
        if any(not schedule.get(block).writes for block in blocks):
            return Scheduled(func, self.name, "unscheduled: a block does not declare what it writes")
        for block in blocks:
            _inline(schedule, block)
        for block in schedule.get_child_blocks(root):
            _parallelize(schedule, block, threads)
        return Scheduled(schedule.mod["main"].with_attrs(func.attrs), self.name, "block by block")


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
