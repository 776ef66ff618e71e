"""The regret of each choice as a table."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence

import numpy as np

from backends.machine_limits import MachineLimits
from bench.markdown import table
from bench.tuning.regret import Judged

TRIES = (1, 4, 8, 16)
Orders = Mapping[str, Sequence[Sequence[float]]]
"""By the name of a choice: what it goes by, for each kernel."""


def text(kernels: Sequence[Judged], orders: Orders, machine: MachineLimits) -> str:
    """Return the report in Markdown."""
    points = sum(len(kernel.cycles) for kernel in kernels)
    rows = [[name, *(_spread(kernels, found, tries) for tries in TRIES)] for name, found in orders.items()]
    families = sorted({kernel.family for kernel in kernels})
    by_family = [[family, *_of_family(family, kernels, orders)] for family in families]
    return "\n\n".join(
        [
            "# Regret",
            f"{machine.threads} threads, float32. FMA peak {machine.peak_gflops:.0f} GFLOP/s, memory "
            f"{machine.bandwidth_gbs:.1f} GB/s; measured in this run.",
            f"{len(kernels)} kernels, {points} points. What the best of the first ones takes beyond the best measured: "
            "median, 90th percentile and mean.",
            table(["order", *(f"{tries} measured" for tries in TRIES)], rows),
            "Of each family, the mean with one point and with eight:",
            table(["family", "kernels", *orders], by_family),
        ]
    ) + "\n"  # fmt: skip


def as_json(kernels: Sequence[Judged], orders: Orders, machine: MachineLimits) -> str:
    """Return all regrets."""
    found = [
        {
            "name": kernel.name, "family": kernel.family, "points": len(kernel.cycles),
            **{name: [kernel.regret(order[place], tries) for tries in TRIES] for name, order in orders.items()},
        }
        for place, kernel in enumerate(kernels)
    ]  # fmt: skip
    return json.dumps({"machine": dataclasses.asdict(machine), "tries": TRIES, "kernels": found}, indent=1)


def _regrets(kernels: Sequence[Judged], order: Sequence[Sequence[float]], tries: int) -> list[float]:
    return [100 * kernel.regret(its, tries) for kernel, its in zip(kernels, order, strict=True)]


def _spread(kernels: Sequence[Judged], order: Sequence[Sequence[float]], tries: int) -> str:
    found = _regrets(kernels, order, tries)
    return f"{np.median(found):.1f}% {np.percentile(found, 90):.1f}% {np.mean(found):.1f}%"


def _of_family(family: str, kernels: Sequence[Judged], orders: Orders) -> list[str]:
    places = [place for place, kernel in enumerate(kernels) if kernel.family == family]
    own = [kernels[place] for place in places]
    chosen = ([order[place] for place in places] for order in orders.values())
    means = (f"{np.mean(_regrets(own, its, 1)):.1f}% {np.mean(_regrets(own, its, 8)):.1f}%" for its in chosen)
    return [str(len(own)), *means]
