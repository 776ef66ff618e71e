"""What searches lose that measure few points, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from backends.machine_limits import MachineLimits
from bench.markdown import table
from bench.tuning.regret import Judged
from bench.tuning.replay import by_chance, by_search, by_tables
from bench.tuning.report import TRIES

_SEEDS = 5
_CHOICES: Mapping[str, Callable[[Judged, int, int], list[int]]] = {
    "tables": by_tables, "chance": by_chance, "search": by_search,
}  # fmt: skip


def of(kernels: Sequence[Judged], machine: MachineLimits) -> tuple[str, str]:
    """Return the report in Markdown, and all regrets as JSON."""
    orders = {name: [[choose(kernel, seed, TRIES[-1]) for kernel in kernels] for seed in range(_SEEDS)]
              for name, choose in _CHOICES.items()}  # fmt: skip
    regrets = {name: {tries: _regrets(kernels, found, tries) for tries in TRIES} for name, found in orders.items()}
    rows = [
        [name, *(_spread(regrets[name][tries]) for tries in TRIES), f"{_measured(found):.1f}"]
        for name, found in orders.items()
    ]
    points = sum(len(kernel.points) for kernel in kernels)
    text = "\n\n".join(
        [
            "# Regret of searches",
            f"{machine.threads} threads, float32, {len(kernels)} kernels with {points} points in their thinned spaces, "
            f"{_SEEDS} seeds of noise. What the best of the first points takes beyond the best measured: median, 90th "
            "percentile and mean; and how many points were measured of those that might be.",
            table(["choice", *(f"{tries} measured" for tries in TRIES), "measured"], rows),
        ]
    )
    names = [kernel.name for kernel in kernels]
    return f"{text}\n", json.dumps({"kernels": names, "tries": TRIES, "regrets": regrets}, indent=1)


def _regrets(kernels: Sequence[Judged], orders: Sequence[Sequence[Sequence[int]]], tries: int) -> list[float]:
    return [
        100 * kernel.regret_of(order[:tries])
        for of_seed in orders
        for kernel, order in zip(kernels, of_seed, strict=True)
    ]


def _measured(orders: Sequence[Sequence[Sequence[int]]]) -> float:
    return float(np.mean([len(order) for of_seed in orders for order in of_seed]))


def _spread(found: Sequence[float]) -> str:
    return f"{np.median(found):.1f}% {np.percentile(found, 90):.1f}% {np.mean(found):.1f}%"
