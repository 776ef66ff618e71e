"""Patterns over values. Products and sums match in every order and grouping that frameworks export.

`0.5 * x * (1 + erf(x / sqrt 2))`, `x * (0.5 + 0.5 * erf(x * 0.7071))` and `x * (1 + erf(...)) * 0.5` are one product of
`x`, a sum and a number. A factor has an exponent: 1/2 under `sqrt`, -1 below a division, so that `x / sqrt(v)`,
`x * (1 / sqrt(v))` and `x * rsqrt(v)` are one product too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isclose, nan
from typing import Any, NamedTuple, Protocol

from fusion.rewrites.graph import Value

Names = Mapping[str, Any]
_DEPTH = 6
"""Operators of a product or a sum that are looked through; the longest pattern has four."""
_CLOSE = 1e-5
"""How far an exported number may be off, relative: ONNX Runtime's fusions allow the same."""


class Pattern(Protocol):
    """What a value may look like."""

    def match(self, value: Value, names: Names) -> Names | None:
        """Return `names` and those that the pattern gives, or None where `value` does not match."""


@dataclass(frozen=True)
class Tensor:
    """Any tensor; where the name is known, the same one."""

    name: str

    def match(self, value: Value, names: Names) -> Names | None:
        known = names.get(self.name)
        if known is None:
            return {**names, self.name: value}
        return names if known is value else None


@dataclass(frozen=True)
class Weight:
    """A constant tensor of floating-point numbers."""

    name: str

    def match(self, value: Value, names: Names) -> Names | None:
        return {**names, self.name: value} if value.is_weight else None


class Is:
    """A call of an operator on operands that match."""

    def __init__(self, op: str, *args: Pattern, name: str = "") -> None:
        self.op, self.args, self.name = op, args, name

    def match(self, value: Value, names: Names) -> Names | None:
        if value.op != self.op:
            return None
        found: Names | None = {**names, self.name: value} if self.name else names
        for pattern, arg in zip(self.args, value.args, strict=False):
            found = None if found is None else pattern.match(arg, found)
        return found


@dataclass(frozen=True)
class Named:
    """What matches a pattern, under a name."""

    name: str
    pattern: Pattern

    def match(self, value: Value, names: Names) -> Names | None:
        found = self.pattern.match(value, names)
        return None if found is None else {**found, self.name: value}


class Either:
    """What matches one of several patterns."""

    def __init__(self, *patterns: Pattern) -> None:
        self.patterns = patterns

    def match(self, value: Value, names: Names) -> Names | None:
        return next((found for each in self.patterns if (found := each.match(value, names)) is not None), None)


class Power(NamedTuple):
    """A factor of a product with an exponent other than 1."""

    base: Pattern
    exponent: float


class Product:
    """A product of exactly these factors and a number: one that is close to it, or any, which gets a name."""

    roots = ("multiply", "divide", "power", "sqrt", "rsqrt")

    def __init__(self, *factors: Pattern | Power, number: float | str = 1.0) -> None:
        self.factors = [factor if isinstance(factor, Power) else Power(factor, 1.0) for factor in factors]
        self.number = number

    def match(self, value: Value, names: Names) -> Names | None:
        number, factors = product(value)
        found = _number(self.number, number, names)
        return None if found is None else _assign(self.factors, factors, found)


class Sum:
    """A sum of exactly these terms, their sign as an exponent of 1 or -1, and a number."""

    roots = ("add", "subtract")

    def __init__(self, *terms: Pattern | Power, number: float | str = 0.0) -> None:
        self.terms = [term if isinstance(term, Power) else Power(term, 1.0) for term in terms]
        self.number = number

    def match(self, value: Value, names: Names) -> Names | None:
        number, terms = total(value)
        found = _number(self.number, number, names)
        return None if found is None else _assign(self.terms, terms, found)


def matcher(pattern: Pattern) -> Callable[[Value], Names | None]:
    """Return what matches a value alone."""
    return lambda value: pattern.match(value, {})


def minus(pattern: Pattern) -> Power:
    """Return a term of a sum that is subtracted."""
    return Power(pattern, -1.0)


def _number(wanted: float | str, number: float, names: Names) -> Names | None:
    if isinstance(wanted, str):
        return {**names, wanted: number}
    return names if isclose(wanted, number, rel_tol=_CLOSE, abs_tol=0.0) else None


Parts = Sequence[tuple[Value, float]]


def _assign(patterns: Sequence[Power], parts: Parts, names: Names) -> Names | None:
    """Match each pattern with another part."""
    if len(patterns) != len(parts):
        return None
    if not patterns:
        return names
    (pattern, exponent), *others = patterns
    for place, (value, power) in enumerate(parts):
        found = pattern.match(value, names) if power == exponent else None
        rest = None if found is None else _assign(others, [*parts[:place], *parts[place + 1 :]], found)
        if rest is not None:
            return rest
    return None


def product(value: Value) -> tuple[float, Parts]:
    """Return the number and the factors, with their exponents, whose product `value` is."""
    number, powers, roots = 1.0, dict[Value, float](), list[tuple[Value, float]]()
    for part, exponent in _factors(value, 1.0, _DEPTH):
        if part.number is not None:
            number *= _power(part.number, exponent)
        elif exponent == int(exponent):
            powers[part] = powers.get(part, 0.0) + exponent
        else:  # two roots of one value are no first power: that would be a number where the roots are NaN
            roots.append((part, exponent))
    return number, [*powers.items(), *roots]


def _power(number: float, exponent: float) -> float:
    if number == 0.0 or (number < 0.0 and exponent != int(exponent)):
        return nan
    return float(number**exponent)


def _factors(value: Value, exponent: float, depth: int) -> Iterator[tuple[Value, float]]:
    inside = _exponents(value) if depth == _DEPTH or value.reads == 1 else None
    # The root of a square is an absolute value.
    if inside is None or not depth or (exponent != int(exponent) and 2.0 in inside):
        yield value, exponent
        return
    for arg, power in zip(value.args, inside, strict=False):
        yield from _factors(arg, exponent * power, depth - 1)


def _exponents(value: Value) -> tuple[float, ...] | None:
    if value.op == "power":
        _, exponent = value.args
        power = exponent.number
        return (power,) if power in (-1.0, -0.5, 0.5, 1.0, 2.0, 3.0) else None
    return _EXPONENTS.get(value.op)


_EXPONENTS = {"multiply": (1.0, 1.0), "divide": (1.0, -1.0), "sqrt": (0.5,), "rsqrt": (-0.5,)}


def total(value: Value) -> tuple[float, Parts]:
    """Return the number and the terms, with their signs, whose sum `value` is."""
    number, found = 0.0, list[tuple[Value, float]]()
    for part, sign in _terms(value, 1.0, _DEPTH):
        if part.number is None:
            found.append((part, sign))
        else:
            number += sign * part.number
    return number, found


def _terms(value: Value, sign: float, depth: int) -> Iterator[tuple[Value, float]]:
    if value.op not in Sum.roots or not depth or (depth < _DEPTH and value.reads != 1):
        yield value, sign
        return
    left, right = value.args
    yield from _terms(left, sign, depth - 1)
    yield from _terms(right, sign if value.op == "add" else -sign, depth - 1)
