"""Tables in Markdown."""

from __future__ import annotations

from collections.abc import Sequence

Row = Sequence[str]


def table(header: Row, rows: Sequence[Row]) -> str:
    """Return a Markdown table whose columns are as wide as their longest cell."""
    widths = [max(len(row[column]) for row in (header, *rows)) for column in range(len(header))]
    rule = ["-" * width for width in widths]
    lines = [[cell.ljust(width) for cell, width in zip(row, widths, strict=True)] for row in (header, rule, *rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def number(value: float | None, form: str) -> str:
    """Return `value` in the given form, or nothing for None."""
    return "" if value is None else format(value, form)


def milliseconds(value: float | None) -> str:
    """Return a time with three digits below a millisecond, where two decimals would tell little."""
    return number(value, ".2f" if value is None or value >= 1 else ".3g")
