"""Measures points of drawn kernels, some kernels at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from fusion.context import Context
from fusion.machine_tuning.drawn import DrawnKernel
from fusion.module.kernel_library import KernelLibrary
from fusion.system.temporary_folder import temporary_folder
from tuning.alone import build_questions, measure_questions
from tuning.measuring_session import MeasuringSession
from tuning.record import Record

TOGETHER = 8
"""Kernels of a library: between two runs of one, the others' data pass through L2."""
_SECONDS = 4.0
"""For a run of all candidates, at most."""
_ROOM = 256 << 20
"""Bytes of temporary files."""


def measure_kernels(
    kernels: Sequence[DrawnKernel], ctx: Context, runs: int, over: Callable[[], bool]
) -> list[Record]:
    """Return what points of `kernels` take, each run so often, by turns: what else the machine does lasts longer than a
    turn. Points that were not built before it was `over` are left out."""
    questions = [kernel.question for kernel in kernels]
    with temporary_folder(_ROOM) as folder:
        library = build_questions(questions, KernelLibrary(ctx.compiler), folder / "points.so", over)
        if not library.questions:
            return []
        with MeasuringSession(folder) as session:
            return measure_questions(library, session, ctx.threads, runs, runs * _SECONDS)
