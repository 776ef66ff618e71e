"""Which sizes the symbols of a model take that does not take all: every one that is a multiple of a step away from the
size of the first call, as multiples of 32 are, or that size alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from fusion.declined import Declined
from fusion.errors import FusionError
from fusion.extents import Sizes
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OperatorLine

_STEPS = (1, 2, 4, 8, 16, 32, 64)
"""By which stems and necks divide pictures. Each divides the next: a model that takes one takes those behind it."""
_FAR = 64
"""So much further are sizes that are tried: of heights of 48 and of 49 a stem leaves as many rows."""

Lines = tuple[OperatorLine, ...]
Takes = Callable[[str, int], bool]
"""Whether the model is the same at sizes of a symbol that are so far apart."""


@dataclass
class Narrowing:
    """Tries sizes of one symbol at a time, while the others are those of the first call.

    Attributes:
        outline: Returns the operators of the imported model. Raises `FusionError` where it takes no such sizes, and
            `Declined` where ONNX Runtime would have to refuse them.
        first: The sizes of the first call, at which it can be imported.
        refused: Why other sizes of a symbol are not taken.
    """

    outline: Callable[[Sizes], Lines]
    first: Sizes
    refused: dict[str, str] = field(default_factory=dict, init=False)

    def by_import(self, dims: OpenDims) -> OpenDims:
        """Return `dims` with those sizes at which the model can be imported."""
        return self._narrow(dims, self._imports)

    def by_outline(self, dims: OpenDims) -> OpenDims:
        """Return `dims` with those sizes at which it is the same model but for extents: pads may depend on the rest of
        a division."""
        return self._narrow(dims, self._agrees)

    def describe(self, narrowed: OpenDims) -> str:
        """Return which sizes of the symbols that do not take all these take, and why."""
        taken = {name: f"{size} alone" for name, size in self.first.items() if name not in narrowed.symbols}
        taken |= {name: f"in steps of {sizes.step}" for name, sizes in narrowed.steps.items()}
        return "; ".join(f"{name} {each}, as at others {self.refused[name]}" for name, each in taken.items())

    def _narrow(self, dims: OpenDims, takes: Takes) -> OpenDims:
        likely = _STEPS[0]
        for symbol in dims.symbols:
            steps = [step for step in _STEPS if step >= dims.taken(symbol).step]
            step = _least_step(symbol, steps, likely, takes)
            size = self.first[symbol]
            dims = dims.fixed(symbol, size) if step is None else dims.every(symbol, step, size)
            likely = step or likely
        return dims

    def _imports(self, symbol: str, step: int) -> bool:
        return self._outlines(symbol, (_FAR + step,)) is not None

    def _agrees(self, symbol: str, step: int) -> bool:
        places = (1, 2, 3, max(5, _FAR // step + 1))
        outlines = self._outlines(symbol, [place * step for place in places])
        if outlines is not None and not _is_one(outlines, places):
            self.refused.setdefault(symbol, "it is another model")
            return False
        return outlines is not None

    def _outlines(self, symbol: str, more: Sequence[int]) -> list[Lines] | None:
        try:
            return [self.outline({**self.first, symbol: self.first[symbol] + each}) for each in more]
        except (Declined, FusionError) as reason:
            self.refused.setdefault(symbol, reason.what if isinstance(reason, FusionError) else str(reason))
            return None


def _least_step(symbol: str, steps: Sequence[int], likely: int, takes: Takes) -> int | None:
    """Return the first of `steps`, each of which divides the next, that the model takes; None where it takes none.
    Those that are asked for soonest are the first of all and the `likely` one."""
    low, high, guess = -1, len(steps), 0
    while high - low > 1:
        low, high = (low, guess) if takes(symbol, steps[guess]) else (guess, high)
        between = steps[low + 1 : high]
        if likely in between:
            guess = steps.index(likely)
        elif high == len(steps) or steps[high] == likely:
            guess = high - 1
        else:
            guess = (low + high) // 2
    return steps[high] if high < len(steps) else None


def _is_one(outlines: Sequence[Lines], places: Sequence[int]) -> bool:
    """Return whether the operators are the same at these places but for numbers that are quadratic in it."""
    if len(set(map(len, outlines))) > 1:
        return False
    for lines in zip(*outlines, strict=True):
        if len({(line.text, len(line.numbers)) for line in lines}) > 1:
            return False
        if not all(_is_quadratic(numbers, places) for numbers in zip(*(line.numbers for line in lines), strict=True)):
            return False
    return True


def _is_quadratic(numbers: Sequence[int], places: Sequence[int]) -> bool:
    """Return whether `numbers` at `places`, the first three of which are 1, 2 and 3, are as the first three say."""
    first, second, third, *_ = numbers
    rise, bend = second - first, third - 2 * second + first
    guessed = [first + rise * (place - 1) + bend * ((place - 1) * (place - 2) // 2) for place in places]
    return list(numbers) == guessed
