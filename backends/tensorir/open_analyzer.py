"""Simplifies indices in which symbols divide: `(i * l + j) // l` is `i` for a j below l, which TVM leaves as it is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
        divided = map_nodes(expr, ((tirx.FloorDiv, tirx.FloorMod), self._divide))
        return self._known.simplify(map_nodes(self._known.simplify(divided), ((tirx.Add, tirx.Sub), _put_together)))

    def _divide(self, division: Expr) -> Expr:
        """Return `(q * d + r) // d` as q, and the rest of it as r, where 0 <= r < d."""
        divisor = division.b
        if isinstance(divisor, tirx.IntImm):
            return division
        by = _Product.of(divisor)
        products = _products(self._known.simplify(division.a))
        quotients = [product.over(by) for product in products]
        whole = _sum([quotient for quotient in quotients if quotient])
        rest = _sum([product for product, quotient in zip(products, quotients, strict=True) if not quotient])
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
            return is_one(value.b) and all(var in self._symbols for var in find(value, Var))
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
        if isinstance(value, tirx.FloorDiv):
            return [quotient for most in self._most(value.a) for quotient in self._most_over(most, value.b)]
        if isinstance(value, tirx.Add | tirx.Mul):
            combine = type(value)
            return [combine(a, b) for a in self._most(value.a) for b in self._most(value.b)]
        is_known = isinstance(value, tirx.IntImm) or (isinstance(value, tirx.Sub) and is_one(value.b))
        return [value] if is_known else []

    def _most_over(self, most: Expr, divisor: Expr) -> list[Expr]:
        """Return what the quotient of a value that is at most `most` is at most, where what that is below is a multiple
        of the divisor: the row of a position among b * l * 64 is below b, and its place in the row below l."""
        limit, by = self._known.simplify(most + 1), _Product.of(divisor)
        quotients = [product.over(by) for product in _products(limit)]
        whole = [quotient for quotient in quotients if quotient]
        return [self._known.simplify(_sum(whole) - 1)] if len(whole) == len(quotients) else []


def is_one(value: Expr) -> bool:
    """Return whether an expression is the number 1."""
    return isinstance(value, tirx.IntImm) and int(value.value) == 1


@dataclass(frozen=True)
class _Product:
    """`number * factors`."""

    number: int
    factors: tuple[Expr, ...] = ()

    @classmethod
    def of(cls, value: Expr) -> _Product:
        """Return a value as one product."""
        products = _products(value)
        return products[0] if len(products) == 1 else cls(1, (value,))

    def times(self, other: _Product) -> _Product:
        return _Product(self.number * other.number, self.factors + other.factors)

    def over(self, divisor: _Product) -> _Product | None:
        """Return the product without the factors of another; None where it has not all of them."""
        left = list(self.factors)
        for factor in divisor.factors:
            place = next((place for place, each in enumerate(left) if structural_equal(each, factor)), None)
            if place is None:
                return None
            del left[place]
        if divisor.number == 0 or self.number % divisor.number:
            return None
        return _Product(self.number // divisor.number, tuple(left))

    @property
    def is_one(self) -> bool:
        return self == _Product(1)


def _products(value: Expr) -> list[_Product]:
    """Return what a value is the sum of."""
    if isinstance(value, tirx.Add):
        return [*_products(value.a), *_products(value.b)]
    if isinstance(value, tirx.Sub):
        return [*_products(value.a), *(_Product(-1).times(product) for product in _products(value.b))]
    if isinstance(value, tirx.Mul):
        return [a.times(b) for a in _products(value.a) for b in _products(value.b)]
    return [_Product(int(value.value)) if isinstance(value, tirx.IntImm) else _Product(1, (value,))]


def _sum(products: Sequence[_Product]) -> Expr:
    terms = [prod(product.factors, start=tirx.const(product.number, "int64")) for product in products]
    return sum(terms, start=tirx.const(0, "int64"))


def _put_together(total: Expr) -> Expr:
    """Return a sum without a term and its negative, and with `m * d * (y // d) + m * (y % d)` as `m * y`."""
    products = _products(total)
    shorter = _shorter(products)
    if shorter is None:
        return total
    while (next_one := _shorter(shorter)) is not None:
        shorter = next_one
    return _sum(shorter)


def _shorter(products: Sequence[_Product]) -> list[_Product] | None:
    """Return as much with two products less and at most one more; None where no two go together."""
    for rest in products:
        others = [product for product in products if product is not rest]
        for whole, together in _complements(rest):
            place = next((at for at, each in enumerate(others) if (found := each.over(whole)) and found.is_one), None)
            if place is not None:
                return [*others[:place], *others[place + 1 :], *together]
    return None


def _complements(rest: _Product) -> Iterator[tuple[_Product, list[_Product]]]:
    """Yield what may go together with a product, and what both are."""
    yield _Product(-1).times(rest), []
    for division in rest.factors:
        scale = rest.over(_Product(1, (division,)))
        if isinstance(division, tirx.FloorMod) and scale is not None:
            whole = _Product(1, (tirx.FloorDiv(division.a, division.b),))
            whole = scale.times(_Product.of(division.b)).times(whole)
            yield whole, [scale.times(each) for each in _products(division.a)]
