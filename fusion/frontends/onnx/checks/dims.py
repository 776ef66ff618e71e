"""Shapes of which not all is known: an unknown size differs from none."""

from __future__ import annotations

from collections.abc import Sequence

Dims = Sequence[int | None]


def shapes_differ(left: Dims, right: Dims) -> bool:
    """Return whether the shapes cannot be the same."""
    return len(left) != len(right) or any(map(differ, left, right))


def differ(left: int | None, right: int | None) -> bool:
    """Return whether the sizes cannot be the same."""
    return None not in (left, right) and left != right


def text(dims: Dims) -> str:
    """Return `dims` as errors write them."""
    return "[" + ", ".join("?" if dim is None else str(dim) for dim in dims) + "]"
