"""Bounds that hold together: imports that move one size at a time do not tell of two that are small, or large, at once.
The thousand best of all pixels are all of them where a picture is small both ways, and what is sliced to the length of
another input is as long as that or as itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, product

from fusion.declined import Declined
from fusion.errors import LimitError
from fusion.extents import Sizes
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.sized_imports import SizedImports

_LOW, _HIGH = "low", "high"
_PARTS = 32
"""So many parts has the way from the sizes at which passes see a model to those at its bounds."""
_NEARER = (_PARTS, _PARTS // 2, _PARTS // 4)
"""So far on it large sizes are looked at, where those further on do not fit the memory, as those of no run would."""
_MOST = 4
"""Symbols of which all corners are looked at: each more doubles them; of more, those of each two."""

Corner = Mapping[str, str]
"""The bound of each of some symbols."""


def hold_corners(importer: SizedImports, found: FoundModel) -> FoundModel:
    """Return the model with bounds of which imports at all corners show it: its numbers are products and sums of
    sizes, so that one is on the same side of another everywhere where it is at all corners.

    Raises:
        Declined: It is another one even beside the sizes at which passes see it.
    """
    box = _Box.of(importer, found)
    corners = list(_corners([symbol for symbol, taken in box.taken.items() if len(taken) > 1]))
    while not all([box.holds_at(corner) for corner in corners]):
        pass
    return found if box.bounds == box.taken else replace(found, bounds=box.bounds, together={})


def _corners(symbols: Sequence[str]) -> Iterator[Corner]:
    """Yield the corners of two symbols and more."""
    for some in [symbols] if 1 < len(symbols) <= _MOST else combinations(symbols, 2):
        for sides in product((_LOW, _HIGH), repeat=len(some)):
            yield dict(zip(some, sides, strict=True))


@dataclass
class _Box:
    """The sizes that a model takes, which become fewer.

    Attributes:
        taken: At first.
        ends: How far on the way to the first and last of these the bounds of each symbol are now.
    """

    importer: SizedImports
    found: FoundModel
    taken: Mapping[str, range]
    ends: dict[tuple[str, str], int]

    @classmethod
    def of(cls, importer: SizedImports, found: FoundModel) -> _Box:
        """Return all sizes that it takes, whatever the others are."""
        taken = dict(found.together or found.bounds)
        return cls(importer, found, taken, dict.fromkeys(product(taken, (_LOW, _HIGH)), _PARTS))

    @property
    def bounds(self) -> dict[str, range]:
        """The sizes of each symbol now."""
        return {
            symbol: range(self._size(symbol, _LOW), self._size(symbol, _HIGH) + 1, taken.step)
            for symbol, taken in self.taken.items()
        }

    def holds_at(self, corner: Corner) -> bool:
        """Return whether the model is the same at a corner; where it is not, bring bounds nearer, those of inner
        dimensions before batches, so far that it is.

        Raises:
            Declined: It is the same at none.
        """
        if self._goes_on(corner, {}):
            return True
        for moved in self._choices(corner):
            if self._goes_on(corner, dict.fromkeys(moved, 0)):
                known, other = 0, max(self.ends[symbol, corner[symbol]] for symbol in moved)
                while other - known > 1:
                    between = (known + other) // 2
                    if self._goes_on(corner, dict.fromkeys(moved, between)):
                        known = between
                    else:
                        other = between
                for symbol in moved:
                    self.ends[symbol, corner[symbol]] = min(known, self.ends[symbol, corner[symbol]])
                return False
        raise Declined("it is another one where several sizes are small or large together")

    def _choices(self, corner: Corner) -> Iterator[tuple[str, ...]]:
        """Yield which symbols are to have bounds nearer to the sizes at which passes see the model."""
        inner = tuple(symbol for symbol in corner if symbol not in self.found.dims.leading)
        for symbols in (inner, tuple(corner)):
            yield from combinations(symbols, 2)
            yield symbols

    def _goes_on(self, corner: Corner, nearer: Mapping[str, int]) -> bool:
        """Return whether the model is the same at a corner, with bounds of some symbols `nearer`, or nothing can be
        told of it, as it does not fit the memory."""
        for most in _NEARER:
            parts = {symbol: min(nearer.get(symbol, _PARTS), self.ends[symbol, side], most if side == _HIGH else _PARTS)
                     for symbol, side in corner.items()}  # fmt: skip
            sizes = {symbol: self._size(symbol, corner[symbol], part) for symbol, part in parts.items()}
            limits = len(self.importer.limits)
            try:
                return self.importer.goes_on({**self._near(), **sizes}, self.found)
            except LimitError:
                del self.importer.limits[limits:]
        return True

    def _near(self) -> Sizes:
        return {symbol: self._size(symbol, _LOW, 0) for symbol in self.taken}

    def _size(self, symbol: str, side: str, part: int | None = None) -> int:
        """Return the size so far on the way to a bound, in equal factors; None stands for that which it is now."""
        taken = self.taken[symbol]
        near = [sizes[symbol] for sizes in self.found.near]
        end, begin = (taken[0], min(near)) if side == _LOW else (taken[-1], max(near))
        begin = min(max(begin, taken[0]), taken[-1])
        part = self.ends[symbol, side] if part is None else part
        size: float = begin * (end / begin) ** (part / _PARTS)
        return taken[round((size - taken[0]) / taken.step)]
