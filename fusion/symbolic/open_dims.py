"""The dimensions that a model leaves open, as symbols: those of one name have one size."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from fusion.declined import Declined
from fusion.extents import DerivedSize, Extent, Sizes, with_derived
from fusion.signature import TensorSpec

Shape = tuple[int, ...]
LARGEST, LARGEST_BATCH = 1 << 12, 1 << 16
"""Of a symbol that nothing in the model bounds, and of one that is the first dimension of an input, as a batch or the
rows of a table."""
_REACH = 2
"""Where the first call has more, as a recording has, sizes go up to the power of two behind its own, so often doubled:
one of a second is followed by one of four."""
_PAIRS = (
    (2, 3), (5, 7), (11, 13), (17, 19), (31, 47), (41, 43), (59, 61), (67, 71), (79, 83), (97, 101), (103, 107),
    (109, 113),
)  # fmt: skip
"""Sizes at which passes see a dimension: no multiples of what kernels count by. Each is a prime of its own, so that no
product of some is one of others, and two of a pair differ by a power of two: what is left of a division by 2 or 3, if
it is the same of both, is another one of 4096."""
_INNER_FROM = (4, 2, 1)
"""Where in that the sizes begin of dimensions that are the first of no input; smaller ones are for models whose tables
end there.

What is chosen for a few rows costs many rows little, not the other way round: MiniLM with the groups that are best at
3 x 127 took 1.4 times as long as its static form at 1 x 16, with those of 2 x 31 1.1 times, and as long at 9 x 167.
"""

_FEWEST = 3
"""Words or pixels that are looked at where a table ends early: one or two may be another model."""
_RESTS = (2, 1, 3, 0)
"""What a division by 4 leaves of the number of steps to sizes that are steps apart."""
PLUS = "_plus_"
"""Stands in symbols for the sign in the name of a sum."""
_SIGNS = {"+": PLUS, "-": "_minus_", "*": "_times_", "/": "_by_"}


class Undecided(Declined):
    """The model has no form for all sizes now; another process, or one with more memory, may find one."""


class CallAtFault(Undecided):
    """The model has no form for all sizes, and does not take those of the call that it was to be made for."""


@dataclass(frozen=True)
class OpenDims:
    """The inputs of a model by their dimensions.

    Attributes:
        inputs: Names of the inputs.
        dims: For each input the size of each dimension, or its symbol.
        derived: Symbols whose sizes follow from those of the inputs; first those of inputs that follow from others, as
            a mask is as long as a cache and what is behind it.
        steps: The sizes of symbols that do not take all, as multiples of 32 do not.
        shown: The largest size at which imports tell what follows from others, and passes see the model, of dimensions
            that are the first of no input: a table of positions may end behind it.
        largest: The largest size of dimensions that are the first of no input and that nothing in the model bounds.
        limits: The sizes of symbols for which the user gave some.
    """

    inputs: tuple[str, ...]
    dims: tuple[tuple[int | str, ...], ...]
    derived: tuple[DerivedSize, ...] = ()
    steps: Mapping[str, range] = field(default_factory=dict)
    shown: int = LARGEST
    largest: int = LARGEST
    limits: Mapping[str, range] = field(default_factory=dict)

    @classmethod
    def of(cls, specs: Sequence[TensorSpec]) -> OpenDims | None:
        """Return the dimensions of a signature; None where the rank of an input is open, or it is no tensor."""
        if any(spec.shape is None or not spec.is_tensor for spec in specs):
            return None
        return cls(tuple(spec.name for spec in specs), tuple(map(_dims, specs)))

    @cached_property
    def symbols(self) -> tuple[str, ...]:
        """The symbols of the inputs in the order in which they come, without those that follow from others."""
        following = {size.symbol for size in self.derived}
        named = dict.fromkeys(dim for dims in self.dims for dim in dims if isinstance(dim, str))
        return tuple(symbol for symbol in named if symbol not in following)

    @cached_property
    def following(self) -> tuple[DerivedSize, ...]:
        """The sizes of inputs that follow from those of others."""
        named = {dim for dims in self.dims for dim in dims}
        return tuple(size for size in self.derived if size.symbol in named)

    @cached_property
    def leading(self) -> tuple[str, ...]:
        """Those that are the first dimension of an input: batches, mostly."""
        first_axes = {dims[0] for dims in self.dims if dims}
        return tuple(symbol for symbol in self.symbols if symbol in first_axes)

    def bind(self, specs: Sequence[TensorSpec]) -> tuple[TensorSpec, ...]:
        """Return `specs`, those of the inputs, with the sizes that are no symbols."""
        return tuple(
            replace(spec, shape=tuple(None if isinstance(dim, str) else dim for dim in dims))
            for spec, dims in zip(specs, self.dims, strict=True)
        )

    def taken(self, symbol: str) -> range:
        """Return the sizes that a symbol of the inputs may have."""
        return self.steps.get(symbol, range(1, self._largest(symbol) + 1))

    def reaching(self, first: Sizes | None) -> OpenDims:
        """Return the same with larger sizes where those of the `first` call ask for it, as recordings' do."""
        inner = (size for symbol, size in (first or {}).items() if symbol not in self.leading)
        most = max(inner, default=0)
        return self if most <= self.largest else replace(self, largest=1 << most.bit_length() + _REACH)

    def within(self, bounds: Mapping[str, range]) -> OpenDims:
        """Return the same for the sizes that dimensions of these names have."""
        found = replace(self, limits={_symbol(name): sizes for name, sizes in bounds.items()})
        for symbol, sizes in found.limits.items():
            found = found.every(symbol, sizes.step, sizes.start)
        return found

    def limited(self, bounds: Mapping[str, range]) -> dict[str, range]:
        """Return those of the sizes `bounds` of symbols that are within the limits."""
        found = dict(bounds)
        for symbol in bounds.keys() & self.limits.keys():
            sizes, limit = bounds[symbol], self.limits[symbol]
            found[symbol] = range(max(sizes.start, limit.start), min(sizes.stop, limit.stop), sizes.step)
        return found

    def choices(self, symbol: str, usual: range) -> range:
        """Return those of the `usual` sizes that a symbol takes, or others where a table ends before these."""
        if self.shown < LARGEST and symbol not in self.leading:
            usual = range(usual.start if 2 * usual.start <= self.shown else _FEWEST, min(self.shown + 1, usual.stop))
        taken = self.taken(symbol)
        return taken[_place_from(usual.start, taken) : _place_from(usual.stop, taken)]

    def every(self, symbol: str, step: int, size: int) -> OpenDims:
        """Return the same where `symbol` has `size` or sizes that are `step` or a multiple of it apart from that."""
        if step == 1:
            return self
        return replace(self, steps={**self.steps, symbol: range(size % step or step, self._largest(symbol) + 1, step)})

    def fixed(self, symbol: str, size: int) -> OpenDims:
        """Return the same where `symbol` is no symbol, as it has one size, nor what follows from it alone."""
        known, derived = {symbol: size}, list[DerivedSize]()
        for each in self.derived:
            each = replace(each, parts=tuple(part.with_sizes(known) for part in each.parts))
            if all(part.is_static for part in each.parts):
                known[each.symbol] = each.at({})
            else:
                derived.append(each)
        dims = tuple(tuple(known.get(dim, dim) if isinstance(dim, str) else dim for dim in each) for each in self.dims)
        steps = {name: sizes for name, sizes in self.steps.items() if name not in known}
        return replace(self, dims=dims, derived=tuple(derived), steps=steps)

    @cached_property
    def relations(self) -> tuple[DerivedSize, ...]:
        """How sizes follow from others: those that are derived, what is added up from the sum and the others and, where
        a division leaves nothing of any size that the symbols take, what is divided from the quotient."""
        taken = {symbol: self.taken(symbol) for symbol in self.symbols}
        sizes = {symbol: np.arange(each.start, each.stop, each.step) for symbol, each in taken.items()}
        known, found = dict[str, np.ndarray](), []
        for size in self.derived:
            part, *others = size.parts
            found += [size, *_parts_of_sum(size)]
            if not (others or size.most) and part.coefficient == 1 and len(part.symbols) == 1:
                (name,) = part.symbols
                known |= {name: sizes[name]} if name in sizes else {}
                if name in known:
                    divided = known[name] + part.constant
                    known[size.symbol] = divided // size.divisor
                    if not (divided % size.divisor).any():
                        found.append(DerivedSize(name, (Extent(-part.constant, size.divisor, (size.symbol,)),)))
        return tuple(found)

    def sources(self, symbols: Iterable[str]) -> set[str]:
        """Return `symbols`, and those that these follow from."""
        found = set(symbols)
        for size in reversed(self.derived):
            if size.symbol in found:
                found.update(symbol for part in size.parts for symbol in part.symbols)
        return found

    def all_sizes(self, sizes: Sizes) -> dict[str, int]:
        """Return `sizes`, which are those of the inputs, and those that follow from them."""
        return with_derived(sizes, self.derived)

    def shapes(self, sizes: Sizes) -> dict[str, Shape]:
        """Return the shape of each input, by name."""
        known = with_derived(sizes, self.following)
        found = [tuple(known[dim] if isinstance(dim, str) else dim for dim in dims) for dims in self.dims]
        return dict(zip(self.inputs, found, strict=True))

    def sizes(self, shapes: Sequence[Shape]) -> dict[str, int] | None:
        """Return the size of each symbol where inputs have these shapes; None where one has two, or the model takes
        no such shapes, or one that follows from others does not."""
        found: dict[str, int] = {}
        for dims, shape in zip(self.dims, shapes, strict=True):
            if len(dims) != len(shape):
                return None
            for dim, extent in zip(dims, shape, strict=True):
                if (found.setdefault(dim, extent) if isinstance(dim, str) else dim) != extent:
                    return None
        follows = all(found[size.symbol] == size.at(found) for size in self.following)
        return {symbol: found[symbol] for symbol in self.symbols} if follows else None

    def probes(self) -> Iterator[tuple[Sizes, Sizes]]:
        """Yield two choices of sizes at which passes may see the model, the largest first; no two symbols have the
        same, and none has the same in both. There is no such choice where there are many symbols. Those that take
        sizes a step apart have that of this place among these: few choices, as they are far apart."""
        leading = self.leading
        inner = [symbol for symbol in self.symbols if symbol not in leading]
        for start in _INNER_FROM[-1:] if self.steps else _INNER_FROM:
            of_inner = _PAIRS[start : start + len(inner)]
            of_leading = [pair for pair in _PAIRS if pair not in of_inner][: len(leading)]
            if len(of_inner) + len(of_leading) == len(self.symbols):
                pairs = dict(zip((*leading, *inner), (*of_leading, *of_inner), strict=True))
                first, second = (
                    {symbol: self._taken_at(symbol, pairs[symbol][place] - 1) for symbol in self.symbols}
                    for place in (0, 1)
                )
                yield first, second

    def spread(self, place: int) -> dict[str, int]:
        """Return the sizes at the given place of a sequence without a pattern, odd and even, and in steps of both: the
        first dimensions of inputs are small. No size is a sum of multiples of two others at all places."""
        found = {}
        for number, symbol in enumerate(self.symbols):
            size = 101 + 37 * number + (49 + 14 * number + 6 * place) * place
            size += 7 * (place**3 * number % 11) if number > 2 else 0
            size *= max(1, self.largest // LARGEST)  # steps between the frames of a recording are large, too
            if symbol in self.leading:
                size = 2 + (3 * place + number) % 7
            elif self.shown < LARGEST:
                size = _FEWEST + size % (self.shown + 1 - _FEWEST)
            step = self.taken(symbol).step
            steps = 4 * (size // step // 4 + place) + _RESTS[(place + number) % len(_RESTS)]
            found[symbol] = size if step == 1 else self._taken_at(symbol, steps)
        return found

    def halved(self, sizes: Sizes) -> dict[str, int]:
        """Return sizes about half as large, of which a division by 4 leaves as many steps as of these."""
        found = {}
        for symbol, size in sizes.items():
            taken = self.taken(symbol)
            steps = (size - taken.start) // taken.step
            found[symbol] = max(2, size // 2) if symbol in self.leading else taken[4 * (steps // 8) + steps % 4]
        return found

    def division(self, symbol: str) -> int:
        """Return by what the size of a symbol is divided at most until others follow from it: by 32 behind five strides
        of 2."""
        found = {symbol: 1}
        for size in self.derived:
            parts = [found[name] for part in size.parts for name in part.symbols if name in found]
            if parts:
                found[size.symbol] = size.divisor * max(parts)
        return max(found.values())

    def at_most(self, symbol: str, size: int) -> int:
        """Return the largest size that `symbol` takes up to `size`, or the smallest of all."""
        taken = self.taken(symbol)
        return self._taken_at(symbol, max(0, (size - taken.start) // taken.step))

    def at_least(self, symbol: str, size: int) -> int:
        """Return the smallest size that `symbol` takes from `size` on, or the largest of all."""
        return self._taken_at(symbol, _place_from(size, self.taken(symbol)))

    def _largest(self, symbol: str) -> int:
        usual = LARGEST_BATCH if symbol in self.leading else self.largest
        return max(usual, self.limits[symbol][-1]) if symbol in self.limits else usual

    def _taken_at(self, symbol: str, place: int) -> int:
        taken = self.taken(symbol)
        return taken[min(place, len(taken) - 1)]


def _place_from(size: int, taken: range) -> int:
    """Return the place of the first of the sizes `taken` that is no smaller than `size`, or would be."""
    return max(0, -((taken.start - size) // taken.step))


def _parts_of_sum(size: DerivedSize) -> Iterator[DerivedSize]:
    """Yield how each size that is once in a sum with others follows from the sum."""
    for part in size.parts:
        others = [replace(other, coefficient=-other.coefficient, constant=-other.constant)
                  for other in size.parts if other is not part]  # fmt: skip
        if size.divisor == 1 and not size.most and others and part.coefficient == len(part.symbols) == 1:
            yield DerivedSize(part.symbols[0], (Extent(-part.constant, 1, (size.symbol,)), *others))


def _dims(spec: TensorSpec) -> tuple[int | str, ...]:
    names = spec.axes or ("",) * len(spec.shape or ())
    return tuple(
        extent if extent is not None else _symbol(name or f"{spec.name}_{axis}")
        for axis, (extent, name) in enumerate(zip(spec.shape or (), names, strict=True))
    )


def _symbol(name: str) -> str:
    """Return the name as TensorIR's variables may have it, with a word for each sign: a difference is no sum."""
    signs = re.sub(r"\s*([-+*/])\s*", lambda found: _SIGNS[found[1]], name)
    return re.sub(r"\W", "_", f"_{signs}" if signs[0].isdigit() else signs)
