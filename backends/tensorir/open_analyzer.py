"""Simplifies indices in which symbols divide: `(i * l + j) // l` is `i` for a j below l, which TVM leaves as it is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any, Protocol

from tvm import sym, tirx
from tvm.ir import Range, Var
from tvm_ffi.structural import structural_equal

from fusion.structural import find, map_nodes

Expr = Any


class Analyzer(Protocol):
    """What is known of variables: TVM's `Analyzer`, or one that knows more."""

    def bind(self, var: Var, range: Range) -> None:
        """Take in the range of a variable."""

    def simplify(self, expr: Expr) -> Expr:
        """Return a simpler expression of the same value."""


def analyzer_of(extents: Sequence[Expr]) -> Analyzer:
    """Return an analyzer for loops of such extents: TVM's own where all are numbers."""
    return sym.Analyzer() if all(isinstance(extent, int) for extent in extents) else OpenAnalyzer()


@dataclass
class OpenAnalyzer:
    """TVM's analyzer, and divisions by symbols.

    Attributes:
        below: What each variable is below; all are 0 or more.
    """

    below: dict[Var, Expr] = field(default_factory=dict)
    _symbols: dict[Var, None] = field(default_factory=dict, init=False)
    _known: sym.Analyzer = field(default_factory=sym.Analyzer, init=False)

    def bind(self, var: Var, range: Range) -> None:
        """Take in that `var` is in `range`, which begins at 0."""
        self._known.bind(var, range)
        self.below[var] = range.extent
        self._symbols.update(dict.fromkeys(find(range.extent, Var)))

    def simplify(self, expr: Expr) -> Expr:
        """Return `expr` simplified."""
        divided = self._known.simplify(map_nodes(expr, ((tirx.FloorDiv, tirx.FloorMod), self._divide)))
        return map_nodes(divided, (tirx.Add, self._put_together))

    def _put_together(self, total: Expr) -> Expr:
        """Return `m * d * (y // d) + m * (y % d)`, among other terms, as `m * y`."""
        terms = _terms(total)
        for rest in terms:
            for division in [factor for factor in _factors(rest) if isinstance(factor, tirx.FloorMod)]:
                others = [term for term in terms if term is not rest]
                scale = _quotient(rest, division)
                whole = tirx.FloorDiv(division.a, division.b) * division.b * scale
                place = next((at for at, term in enumerate(others) if _is_one(_quotient(term, whole))), None)
                if place is not None:
                    del others[place]
                    return self._put_together(sum(others, start=scale * division.a))
        return total

    def _divide(self, division: Expr) -> Expr:
        """Return `(q * d + r) // d` as q, and the rest of it as r, where 0 <= r < d."""
        divisor = division.b
        if isinstance(divisor, tirx.IntImm):
            return division
        whole, rest = tirx.const(0, "int64"), tirx.const(0, "int64")
        for term in _terms(self._known.simplify(division.a)):
            quotient = _quotient(term, divisor)
            whole, rest = (whole, rest + term) if quotient is None else (whole + quotient, rest)
        if not self._is_below(rest, divisor):
            return division
        return self._known.simplify(whole if isinstance(division, tirx.FloorDiv) else rest)

    def _is_below(self, value: Expr, limit: Expr) -> bool:
        """Return whether 0 <= value < limit, as far as it is seen, where no symbol is 0: nothing is read then."""
        if not self._is_positive(value):
            return False
        return any(self._fits(most, limit) for most in self._most(value))

    def _fits(self, most: Expr, limit: Expr) -> bool:
        room = self._known.simplify(limit - 1 - most)
        return isinstance(room, tirx.IntImm) and int(room.value) >= 0

    def _is_positive(self, value: Expr) -> bool:
        """Return whether a value is 0 or more."""
        if isinstance(value, tirx.Add | tirx.Mul | tirx.Min | tirx.FloorDiv | tirx.FloorMod):
            return self._is_positive(value.a) and self._is_positive(value.b)
        if isinstance(value, tirx.Max):
            return self._is_positive(value.a) or self._is_positive(value.b)
        if isinstance(value, tirx.Sub):
            return _is_one(value.b) and all(var in self._symbols for var in find(value, Var))
        if isinstance(value, Var):
            return value in self.below or value in self._symbols
        return isinstance(value, tirx.IntImm) and int(value.value) >= 0

    def _most(self, value: Expr) -> list[Expr]:
        """Return what a value that is 0 or more is at most."""
        if isinstance(value, Var):
            return [self.below[value] - 1 if value in self.below else value]
        if isinstance(value, tirx.Min):
            return [*self._most(value.a), *self._most(value.b)]
        if isinstance(value, tirx.FloorMod):
            return [*self._most(value.a), value.b - 1]
        if isinstance(value, tirx.Add | tirx.Mul):
            combine = type(value)
            return [combine(a, b) for a in self._most(value.a) for b in self._most(value.b)]
        is_known = isinstance(value, tirx.IntImm) or (isinstance(value, tirx.Sub) and _is_one(value.b))
        return [value] if is_known else []


def _is_one(value: Expr) -> bool:
    return isinstance(value, tirx.IntImm) and int(value.value) == 1


def _terms(value: Expr) -> list[Expr]:
    return [*_terms(value.a), *_terms(value.b)] if isinstance(value, tirx.Add) else [value]


def _factors(value: Expr) -> list[Expr]:
    return [*_factors(value.a), *_factors(value.b)] if isinstance(value, tirx.Mul) else [value]


def _quotient(product: Expr, divisor: Expr) -> Expr | None:
    """Return a product without the factors of another; None where it has not all of them."""
    left = _factors(product)
    for factor in _factors(divisor):
        place = next((place for place, each in enumerate(left) if structural_equal(each, factor)), None)
        if place is None:
            return None
        del left[place]
    return prod(left, start=tirx.const(1, "int64"))
