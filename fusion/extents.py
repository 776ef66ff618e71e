"""Extents that depend on sizes which only a call knows; running a saved module needs nothing else of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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

    def with_sizes(self, sizes: Sizes) -> Extent:
        """Return the same where the symbols that `sizes` has are these numbers."""
        left = tuple(symbol for symbol in self.symbols if symbol not in sizes)
        known = self.coefficient * prod(sizes[symbol] for symbol in self.symbols if symbol in sizes)
        return Extent(self.constant, known, left) if left and known else Extent(self.constant + known)

    def __str__(self) -> str:
        factors = [*([str(self.coefficient)] if self.coefficient != 1 else []), *self.symbols]
        rest = f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else ""
        return " * ".join(factors) + rest if self.symbols else str(self.constant)


@dataclass(frozen=True)
class DerivedSize:
    """The size of a symbol that follows from those of others: `sum(parts) // divisor`, as that of an image behind a
    stride of 2, `(width + 1) // 2`, or that of two rows behind one another."""

    symbol: str
    parts: tuple[Extent, ...]
    divisor: int = 1

    def at(self, sizes: Sizes) -> int:
        """Return the number that it is at the sizes of the others."""
        return sum(part.at(sizes) for part in self.parts) // self.divisor

    def __str__(self) -> str:
        total = " + ".join(map(str, self.parts))
        return f"{self.symbol} = {total if self.divisor == 1 else f'({total}) // {self.divisor}'}"


def with_derived(sizes: Sizes, derived: Iterable[DerivedSize]) -> dict[str, int]:
    """Return `sizes` and those that follow from them, each from those before it."""
    found = dict(sizes)
    for size in derived:
        found[size.symbol] = size.at(found)
    return found
