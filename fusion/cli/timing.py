"""What each stage of a compilation took, as a table or as data."""

from __future__ import annotations

from typing import Any

from fusion.stages import Names, Stages

_LEAST_SHARE = 0.01
"""Of the whole: a stage inside another that took less has no line."""


def timing_table(stages: Stages) -> str:
    """Return a line for each stage, those inside another below it, in the order they began."""
    total = sum(taken.seconds for path, taken in stages.times.items() if len(path) == 1)
    lines = ["   s  CPU s  stage"]
    for path, taken in sorted(stages.times.items(), key=lambda item: _place(item[0], stages)):
        if len(path) == 1 or max(taken.seconds, taken.cpu_seconds) >= _LEAST_SHARE * total:
            times = f" x{taken.count}" if taken.count > 1 else ""
            indent = "  " * (len(path) - 1)
            lines.append(f"{taken.seconds:5.2f}  {taken.cpu_seconds:5.2f}  {indent}{path[-1]}{times}")
    return "\n".join(lines)


def timing_data(stages: Stages) -> list[dict[str, Any]]:
    """Return the same as plain data, without leaving out any."""
    return [
        {"stage": list(path), "s": taken.seconds, "cpu_s": taken.cpu_seconds, "count": taken.count}
        for path, taken in stages.times.items()
    ]


def _place(path: Names, stages: Stages) -> list[int]:
    """Return what sorts stages behind the one they are in."""
    order = list(stages.times)
    return [order.index(path[: depth + 1]) for depth in range(len(path))]
