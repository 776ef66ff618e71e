"""Extents that depend on symbolic sizes. Running a saved module needs only this of them, and no TVM."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import prod

Sizes = Mapping[str, int]
"""Symbol -> its size."""


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
        """Return its value at these sizes."""
        return self.coefficient * prod(sizes[symbol] for symbol in self.symbols) + self.constant

    def with_sizes(self, sizes: Sizes) -> Extent:
        """Return it with the symbols in `sizes` replaced by their sizes."""
        left = tuple(symbol for symbol in self.symbols if symbol not in sizes)
        known = self.coefficient * prod(sizes[symbol] for symbol in self.symbols if symbol in sizes)
        return Extent(self.constant, known, left) if left and known else Extent(self.constant + known)

    def __str__(self) -> str:
        factors = [*([str(self.coefficient)] if self.coefficient != 1 else []), *self.symbols]
        rest = f" {'-' if self.constant < 0 else '+'} {abs(self.constant)}" if self.constant else ""
        return " * ".join(factors) + rest if self.symbols else str(self.constant)


@dataclass(frozen=True)
class DerivedSize:
    """A symbol whose size follows from other symbols: `sum(parts) // divisor`, or `most` where that is smaller and not
    0. Examples are the width of an image after a stride of 2, `(width + 1) // 2`, the length of two rows after one
    another, and how many boxes a detector keeps, `min(boxes, 100)`."""

    symbol: str
    parts: tuple[Extent, ...]
    divisor: int = 1
    most: int = 0

    def at(self, sizes: Sizes) -> int:
        """Return its size, given those of the other symbols, which may be arrays of them."""
        size = sum(part.at(sizes) for part in self.parts) // self.divisor
        return size - (size > self.most) * (size - self.most) if self.most else size

    def __str__(self) -> str:
        total = " + ".join(map(str, self.parts))
        size = total if self.divisor == 1 else f"({total}) // {self.divisor}"
        return f"{self.symbol} = {f'min({size}, {self.most})' if self.most else size}"


def with_derived(sizes: Sizes, derived: Iterable[DerivedSize]) -> dict[str, int]:
    """Return `sizes` with the derived ones, each of which follows from those before it."""
    found = dict(sizes)
    for size in derived:
        found[size.symbol] = size.at(found)
    return found
