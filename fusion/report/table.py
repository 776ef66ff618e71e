"""Plain-text tables."""

from __future__ import annotations

from collections.abc import Sequence


def format_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return `rows` below `header`, aligned; the first column and the last are text, the others numbers."""
    cells = [header, *rows]
    widths = [max(len(row[column]) for row in cells) for column in range(len(header))]
    textual = {0, len(header) - 1}
    lines = (
        "  ".join(
            cell.ljust(width) if column in textual else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in cells
    )
    return "\n".join(line.rstrip() for line in lines)


def shorten(text: str, width: int) -> str:
    """Return `text`, its middle left out where it is longer than `width` characters."""
    if len(text) <= width:
        return text
    head = (width - 3) // 2
    return f"{text[:head]}...{text[head + 3 - width :]}"


def number(value: float | None, form: str) -> str:
    """Return `value` in the given format, or nothing where there is none."""
    return "" if value is None else format(value, form)
