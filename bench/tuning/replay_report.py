"""What searches lose that measure few points, as a table."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from backends.machine_limits import MachineLimits
from bench.markdown import table
from bench.tuning.by_trees import Group, by_trees
from bench.tuning.regret import Judged
from bench.tuning.replay import by_chance, by_search, by_tables
from bench.tuning.report import TRIES

SEEDS = 5
_CHOICES: Mapping[str, Callable[[Judged, int, int], list[int]]] = {
    "tables": by_tables, "chance": by_chance, "search": by_search,
}  # fmt: skip
_GROUPS: Mapping[str, Group] = {
    "trees of each kernel": lambda kernel: kernel.name,
    "trees of each family": lambda kernel: kernel.family,
    "trees of all": lambda kernel: None,
}
_NEAR = 0.01
"""Regret with which a search has arrived."""


def of(kernels: Sequence[Judged], machine: MachineLimits) -> tuple[str, str]:
    """Return the report in Markdown, and all regrets as JSON."""
    orders = {name: [[choose(kernel, seed, TRIES[-1]) for kernel in kernels] for seed in range(SEEDS)]
              for name, choose in _CHOICES.items()}  # fmt: skip
    for name, group in _GROUPS.items():
        orders[name] = [by_trees(kernels, seed, TRIES[-1], group) for seed in range(SEEDS)]
    regrets = {name: {tries: regrets_of(kernels, found, tries) for tries in TRIES} for name, found in orders.items()}
    rows = [
        [name, *(spread(regrets[name][tries]) for tries in TRIES), f"{_measured(found):.1f}", arrival(kernels, found)]
        for name, found in orders.items()
    ]
    points = sum(len(kernel.points) for kernel in kernels)
    text = "\n\n".join(
        [
            "# Regret of searches",
            f"{machine.threads} threads, float32, {len(kernels)} kernels with {points} points in their thinned spaces, "
            f"{SEEDS} seeds of noise. What the best of the first points takes beyond the best measured: median, 90th "
            "percentile and mean; how many points were measured of those that might be; after how many a kernel's "
            f"regret is {_NEAR:.0%} at most ({TRIES[-1] + 1} where it never is), and of how many kernels it is.",
            table(["choice", *(f"{tries} measured" for tries in TRIES), "measured", "arrives after"], rows),
        ]
    )
    names = [kernel.name for kernel in kernels]
    return f"{text}\n", json.dumps({"kernels": names, "tries": TRIES, "regrets": regrets}, indent=1)


def regrets_of(kernels: Sequence[Judged], orders: Sequence[Sequence[Sequence[int]]], tries: int) -> list[float]:
    """Return, for each seed and kernel, what the best of the first `tries` takes beyond the best point, in percent."""
    return [
        100 * kernel.regret_of(order[:tries])
        for of_seed in orders
        for kernel, order in zip(kernels, of_seed, strict=True)
    ]


def _measured(orders: Sequence[Sequence[Sequence[int]]]) -> float:
    return float(np.mean([len(order) for of_seed in orders for order in of_seed]))


def arrival(kernels: Sequence[Judged], orders: Sequence[Sequence[Sequence[int]]]) -> str:
    """Return after how many points a kernel's regret is small, in the mean, and of how many kernels it is."""
    after = [
        next((many for many in range(1, len(order) + 1) if kernel.regret_of(order[:many]) <= _NEAR), TRIES[-1] + 1)
        for of_seed in orders
        for kernel, order in zip(kernels, of_seed, strict=True)
    ]
    return f"{np.mean(after):.1f}, {np.mean([many <= TRIES[-1] for many in after]):.0%}"


def spread(found: Sequence[float]) -> str:
    """Return the median, the 90th percentile and the mean of percentages."""
    return f"{np.median(found):.1f}% {np.percentile(found, 90):.1f}% {np.mean(found):.1f}%"
