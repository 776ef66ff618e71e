"""Measures points of drawn kernels, some kernels at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import repeat

from fusion.context import Context
from fusion.machine_tuning.drawn import DrawnKernel
from fusion.module.kernel_library import KernelLibrary
from fusion.module.shared_library import temporary_folder
from tuning.alone import build_questions, measure_questions
from tuning.canonical import canonical
from tuning.measuring_session import MeasuringSession
from tuning.record import Record

TOGETHER = 8
"""Kernels of a library: between two runs of one, the others' data pass through L2."""
_SECONDS = 60.0
_ROOM = 256 << 20
"""Bytes of temporary files."""


def measure_kernels(
    kernels: Sequence[DrawnKernel], ctx: Context, sessions: int, over: Callable[[], bool]
) -> list[Record]:
    """Return what points of `kernels` take, each the least of some sessions: what else the machine does lasts longer
    than one. Points that were not built before it was `over` are left out."""
    questions, least = [kernel.question for kernel in kernels], dict[tuple[str, str], Record]()
    with temporary_folder(_ROOM) as folder:
        library = build_questions(questions, ctx.compiler, KernelLibrary(ctx.compiler), folder / "points.so", over)
        if not library.questions:
            return []
        with MeasuringSession(folder) as session:
            for _ in repeat(None, sessions):
                for record in measure_questions(library, session, ctx.threads, _SECONDS):
                    key = record.task.key, canonical(record.point)
                    least[key] = min(least.get(key, record), record, key=lambda each: each.seconds)
    return list(least.values())
