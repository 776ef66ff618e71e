"""Measures the points of drawn kernels into a file of records."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from fusion.context import Context
from fusion.machine_tuning.drawn import DrawnKernel
from fusion.machine_tuning.measure import TOGETHER, measure_kernels
from tuning.record import Record, read_lines

_RUNS = 30
"""Of a point."""

Found = Mapping[str, Sequence[Record]]
"""By the key of the task."""


def measured(kernels: Sequence[DrawnKernel], ctx: Context, path: Path) -> Found:
    """Return the records of `kernels`, after those that `path` lacks have been measured and added to it."""
    found = _read(path)
    missing = [kernel for kernel in kernels if kernel.question.known.task.key not in found]
    done = len(kernels) - len(missing)
    for start in range(0, len(missing), TOGETHER):
        some = missing[start : start + TOGETHER]
        records = measure_kernels(some, ctx, _RUNS, lambda: False)
        with path.open("a") as file:
            file.writelines(f"{record.as_line()}\n" for record in records)
        done += len(some)
        print(f"{done}/{len(kernels)} kernels, {len(records)} points", file=sys.stderr, flush=True)
    return _read(path)


def _read(path: Path) -> Found:
    found = dict[str, list[Record]]()
    for record in read_lines(path.read_text().splitlines() if path.exists() else ()).records:
        found.setdefault(record.task.key, []).append(record)
    return found
