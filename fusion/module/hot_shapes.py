"""Which shapes of a module with one form for all sizes are called so often that a form of their own is worth it."""

from __future__ import annotations

from collections import Counter

from fusion.module.specialization import Shapes

OFTEN = 1000
"""So many calls of one shape: a form of its own takes as long to make as some hundred calls, and saves a twentieth of
each."""
_COUNTED = 1024
"""Shapes that are counted at a time."""


class HotShapes:
    """Counts the calls of each shape. Threads may call at a time: one that is lost counts with the next."""

    def __init__(self, most: int) -> None:
        """`most` is how many shapes may have forms of their own; 0 for none."""
        self._left = most
        self._calls: Counter[Shapes] = Counter()

    def is_hot_now(self, shapes: Shapes) -> bool:
        """Count a call; return whether it is the one with which the shapes are worth a form of their own."""
        if not self._left:
            return False
        self._calls[shapes] += 1
        if self._calls[shapes] != OFTEN:
            if len(self._calls) > _COUNTED:
                self._calls.clear()
            return False
        self._left -= 1
        return True
