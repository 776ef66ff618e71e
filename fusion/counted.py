"""Numbers of things, as reports write them."""

from __future__ import annotations


def counted(count: int, noun: str) -> str:
    """Return how many there are: "1 call", "2 calls"; `noun` is the singular, whose plural ends in s."""
    return f"{count} {noun}{'' if count == 1 else 's'}"
