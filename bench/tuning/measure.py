"""Measures the points of drawn kernels, some kernels at a time, into a file of records."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from bench.tuning.drawn import DrawnKernel
from fusion.context import Context
from fusion.module.kernel_library import KernelLibrary
from fusion.module.shared_library import temporary_folder
from tuning.alone import build_questions, measure_questions
from tuning.canonical import canonical
from tuning.measuring_session import MeasuringSession
from tuning.record import Record, read_lines

_TOGETHER = 8
"""Kernels of a library: between two runs of one, the others' data pass through L2."""
_TIMES = 3
"""A point's time is the least of so many sessions: what else the machine does lasts longer than one."""
_SECONDS = 60.0
_ROOM = 256 << 20
"""Bytes of temporary files."""

Found = Mapping[str, Sequence[Record]]
"""By the key of the task."""


def measured(kernels: Sequence[DrawnKernel], ctx: Context, path: Path) -> Found:
    """Return the records of `kernels`, after those that `path` lacks have been measured and added to it."""
    found = _read(path)
    missing = [kernel for kernel in kernels if kernel.question.known.task.key not in found]
    done = len(kernels) - len(missing)
    for start in range(0, len(missing), _TOGETHER):
        some = missing[start : start + _TOGETHER]
        records = list(_measure(some, ctx))
        with path.open("a") as file:
            file.writelines(f"{record.as_line()}\n" for record in records)
        done += len(some)
        print(f"{done}/{len(kernels)} kernels, {len(records)} points", file=sys.stderr, flush=True)
    return _read(path)


def _measure(kernels: Sequence[DrawnKernel], ctx: Context) -> Iterator[Record]:
    questions, least = [kernel.question for kernel in kernels], dict[tuple[str, str], Record]()
    with temporary_folder(_ROOM) as folder:
        toolchain = KernelLibrary(ctx.compiler)
        library = build_questions(questions, ctx.compiler, toolchain, folder / "points.so", lambda: False)
        with MeasuringSession(folder) as session:
            for _ in range(_TIMES):
                for record in measure_questions(library, session, ctx.threads, _SECONDS):
                    key = record.task.key, canonical(record.point)
                    least[key] = min(least.get(key, record), record, key=lambda each: each.seconds)
    yield from least.values()


def _read(path: Path) -> Found:
    found = dict[str, list[Record]]()
    for record in read_lines(path.read_text().splitlines() if path.exists() else ()).records:
        found.setdefault(record.task.key, []).append(record)
    return found
