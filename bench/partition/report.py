"""The times as a table, as JSON and as a plot."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from bench import markdown
from bench.partition.growth import GrowthPoint, exponent


def text(points: Sequence[GrowthPoint]) -> str:
    """Return the report as Markdown: a line a shape."""
    largest = max(len(found) for found in _shapes(points).values())
    header = ("graph", *["n: s"] * largest, "kernels", "grows with n^")
    lines = [
        "CPU seconds of `FormGroups` over n operators, reading the graph and writing it back included; kernels = of "
        "the largest; grows with n^ = the largest exponent between neighbouring sizes.",
        "",
        markdown.table(header, [_row(name, found, largest) for name, found in _shapes(points).items()]),
    ]
    return "\n".join(lines) + "\n"


def _shapes(points: Sequence[GrowthPoint]) -> dict[str, list[GrowthPoint]]:
    found: dict[str, list[GrowthPoint]] = {}
    for point in points:
        found.setdefault(point.shape, []).append(point)
    return {name: sorted(line, key=lambda point: point.operators) for name, line in found.items()}


def _row(name: str, points: Sequence[GrowthPoint], columns: int) -> markdown.Row:
    cells = [f"{point.operators}: {point.seconds:.2f}" for point in points]
    cells += [""] * (columns - len(cells))
    return (name, *cells, str(points[-1].kernels), markdown.number(exponent(points), ".2f"))


def as_json(points: Sequence[GrowthPoint]) -> str:
    """Return the points as JSON."""
    return json.dumps([asdict(point) for point in points], indent=1)


def plot(points: Sequence[GrowthPoint], path: Path) -> None:
    """Write seconds by operators as an SVG, both on logarithmic axes, a line a shape."""
    import matplotlib

    matplotlib.use("svg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for name, found in _shapes(points).items():
        axes.plot([point.operators for point in found], [point.seconds for point in found], marker="o", label=name)
    sizes = [min(point.operators for point in points), max(point.operators for point in points)]
    slowest = max(points, key=lambda point: point.seconds / point.operators)
    per_operator = slowest.seconds / slowest.operators
    axes.plot(sizes, [size * per_operator for size in sizes], "--", color="grey", linewidth=0.8, label="linear")
    axes.set(xscale="log", yscale="log", xlabel="operators", ylabel="CPU seconds", title="Forming groups")
    axes.legend(fontsize=8)
    figure.savefig(path)
    pyplot.close(figure)
