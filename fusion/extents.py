"""Extents that depend on sizes which only a call knows; running a saved module needs nothing else of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

Sizes = Mapping[str, int]
"""The size of each symbol."""


@dataclass(frozen=True)
class Extent:
    """`coefficient * product(symbols) + constant`; a plain number has no symbols."""

    constant: int
    coefficient: int = 0
    symbols: tuple[str, ...] = ()

    @property
    def is_static(self) -> bool:
        """Whether it is the same at all sizes."""
        return not self.symbols

    def at(self, sizes: Sizes) -> int:
        """Return the number that it is at these sizes."""
        return self.coefficient * prod(sizes[symbol] for symbol in self.symbols) + self.constant

    def __str__(self) -> str:
        factors = [*([str(self.coefficient)] if self.coefficient != 1 else []), *self.symbols]
        rest = f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else ""
        return " * ".join(factors) + rest if self.symbols else str(self.constant)
