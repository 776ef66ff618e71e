"""The operators of an imported model and every number in them: what it is at other sizes, compared without its weights.

Expressions may be shared or not, and an operator that moves nothing at some size, as a broadcast from 1 to 1, may be
left out: neither makes another model. Nor do operators of constants only that are computed by the import at smaller
sizes, while at larger ones the result is too large.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import prod

import tvm
from tvm import relax, tirx
from tvm.ir import GenericConst

from fusion.bindings import Bindings, call_name, operand, variables
from fusion.declined import Declined
from fusion.extents import Extent, Sizes
from fusion.frontends.branched import graphs_of
from fusion.passes.guard_operands import unchecked
from fusion.shapes import known_shape
from fusion.symbolic.fit import Fit
from fusion.tensors import as_numpy

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?![\w.])")
_MOVES_NOTHING = frozenset(
    {"reshape", "broadcast_to", "squeeze", "expand_dims", "permute_dims", "astype", "tile", "strided_slice"}
)  # fmt: skip
"""Operators that an import may leave out where shapes are such that they change nothing."""

_PLACE = " #"
"""The end of the text of an operator that reads one constant place of an axis."""

Content = tuple[str, tuple[int, ...]]
"""The text of an operator without numbers, and these."""


@dataclass(frozen=True)
class OperatorLine:
    """One operator.

    Attributes:
        operator: Its name.
        text: That with attributes and the type of the result, without numbers.
        numbers: Those of its attributes, those and the shapes it is given, and of what it returns, in order.
        is_known: Whether it works on constants only.
        unchecked: What runs do not check of its operands, as `guard_operands.unchecked` says it.
        reads_one: Whether it reads one constant place of an axis, which is the last of its numbers.
    """

    operator: str
    text: str
    numbers: tuple[int, ...]
    is_known: bool = False
    unchecked: tuple[int, ...] = ()
    reads_one: bool = False

    @property
    def content(self) -> Content:
        """All that it is."""
        return self.text, self.numbers

    def does_as(self, other: OperatorLine) -> bool:
        """Return whether it does what `other` does. Where that reads a row of places, of which one may be left, it
        matters not which it is: it is a constant, and how these go on is looked at by itself."""
        if self.reads_one and not other.reads_one:
            return (self.text.removesuffix(_PLACE), self.numbers[:-1]) == other.content
        return self.content == other.content

    def is_safe_as(self, other: OperatorLine) -> bool:
        """Return whether what runs do not check of the operands of `other` holds of those of this one too: at sizes
        between both, where a divisor is never 0 if it is more at both, or less."""
        pairs = zip(other.unchecked, self.unchecked, strict=False)
        return len(other.unchecked) == len(self.unchecked) and all(one in (0, here) for one, here in pairs)


def outline(mod: tvm.IRModule) -> tuple[OperatorLine, ...]:
    """Return the operators of the model in order, and what it returns; those of its branches come first."""
    return tuple(line for graph in graphs_of(mod) for line in _graph_lines(graph))


def has_strides(mod: tvm.IRModule) -> bool:
    """Return whether a window in the model skips places: it has so many results as a division leaves."""
    values = (binding.value for graph in graphs_of(mod) for binding in Bindings.of(graph).all)
    attributes = (value.attrs for value in values if isinstance(value, relax.Call))
    return any(int(step) > 1 for each in attributes for step in getattr(each, "strides", None) or ())


def _graph_lines(graph: relax.Function) -> tuple[OperatorLine, ...]:
    bindings, safe = Bindings.of(graph), unchecked(graph)
    known = set[relax.Var]()
    lines = []
    for binding in bindings.all:
        if is_known := known.issuperset(variables(binding.value)):
            known.add(binding.var)
        lines.append(_line(binding.value, is_known, safe.get(binding.var, ())))
    return (*lines, _line(bindings.result))


def _line(value: relax.Expr, is_known: bool = False, unchecked: tuple[int, ...] = ()) -> OperatorLine:
    name, (kind, sizes) = call_name(value), _type_of(value)
    text, place = f"{name} {kind}", ""
    if isinstance(value, relax.Call):
        attributes, place = value.attrs, _place_given(operand(value, "indices")) if name == "take" else ""
        parts = ["" if attributes is None else str(attributes), *map(_numbers_given, value.args[:]), place]
        given, numbers = _without_numbers(" ".join(filter(None, parts)))
        text, sizes = f"{text} {given}", (*sizes, *numbers)
    return OperatorLine(name, text, sizes, is_known, unchecked, reads_one=bool(place))


def _without_numbers(text: str) -> Content:
    return (_NUMBER.sub("#", text), tuple(map(int, _NUMBER.findall(text)))) if text else ("", ())


def _type_of(value: relax.Expr) -> Content:
    """Return the type of `value`: TVM takes 70 us to write one."""
    kind, shape = value.ty, known_shape(value)
    if shape is not None and kind.vdevice is None:
        return f"{kind.dtype} of {len(shape)}", shape
    return _without_numbers(str(kind))


def _numbers_given(arg: relax.Expr) -> str:
    """Return the text of an argument that is a shape, a number or numbers; "" of others. A float that is a whole number
    is one: a size that numbers are cut off at."""
    if isinstance(arg, relax.Tuple):
        return " ".join(map(_numbers_given, arg.fields))
    if isinstance(arg, tirx.FloatImm) and float(arg.value).is_integer():
        return str(int(arg.value))
    return str(arg) if isinstance(arg, relax.ShapeExpr | tirx.IntImm | tirx.FloatImm) else ""


def _place_given(places: relax.Expr) -> str:
    """Return the text of a constant that is one place in an axis, as that in the middle, `rows // 2`; "" of others."""
    held = places.value if isinstance(places, GenericConst) else None
    is_one = isinstance(held, tvm.runtime.Tensor) and prod(held.shape) == 1
    return str(int(as_numpy(held).reshape(()))) if is_one else ""


@dataclass(frozen=True)
class OpenOutline:
    """The operators of a model for all sizes, with the extent that each number is."""

    lines: tuple[tuple[OperatorLine, tuple[Extent, ...]], ...]

    @property
    def extents(self) -> frozenset[Extent]:
        """Those of its numbers that depend on sizes."""
        return frozenset(extent for _, extents in self.lines for extent in extents if not extent.is_static)

    @property
    def fixed(self) -> frozenset[int]:
        """Those of its numbers that are the same at all sizes."""
        return frozenset(extent.constant for _, extents in self.lines for extent in extents if extent.is_static)

    @classmethod
    def of(cls, outlines: Sequence[tuple[OperatorLine, ...]], fit: Fit) -> OpenOutline:
        """Return what outlines at the probes of `fit` have in common.

        Raises:
            Declined: They differ in more than sizes, for this reason.
        """
        check_alike(outlines)
        found = []
        for lines in zip(*outlines, strict=True):
            numbers = zip(*(line.numbers for line in lines), strict=True)
            try:
                found.append((lines[0], tuple(map(fit.extent, numbers))))
            except Declined as reason:
                raise Declined(f"{lines[0].operator or 'its graph'}: {reason}") from None
        return cls(tuple(found))

    def is_at(self, lines: Sequence[OperatorLine], sizes: Sizes, left: frozenset[int] = frozenset()) -> bool:
        """Return whether a model with these operators, which may lack those of the places `left`, is this one at
        `sizes`, with no more to check."""
        wanted = list[tuple[OperatorLine, bool]]()
        for place, (line, extents) in enumerate(self.lines):
            numbers = tuple(extent.at(sizes) if extent.symbols else extent.constant for extent in extents)
            moved = line if numbers == line.numbers else replace(line, numbers=numbers)
            wanted.append((moved, place in left or line.operator in _MOVES_NOTHING))
        # One of many that may be missing takes the line of another: which, is another one from the end.
        return _are_in_order(wanted, lines) or bool(left and _are_in_order(wanted[::-1], lines[::-1]))

    def leaves(self, lines: Sequence[OperatorLine]) -> bool:
        """Return whether a model with these operators leaves some of constants only that are computed in this one."""
        return sum(line.is_known for line in lines) > sum(line.is_known for line, _ in self.lines)


def check_alike(outlines: Sequence[tuple[OperatorLine, ...]]) -> None:
    """Raise what models of which these are the operators at some sizes differ in but for numbers.

    Raises:
        Declined: They do, for this reason.
    """
    if len(set(map(len, outlines))) > 1:
        raise Declined("it has another number of operators at other sizes")
    for lines in zip(*outlines, strict=True):
        if len({(line.text, len(line.numbers)) for line in lines}) > 1:
            raise Declined(f"its {lines[0].operator or 'graph'} is another one at other sizes")


def _are_in_order(wanted: Sequence[tuple[OperatorLine, bool]], lines: Sequence[OperatorLine]) -> bool:
    """Return whether `lines` are these in this order, but for those that may be missing, and else only operators on
    constants."""
    at = 0
    for line, may_miss in wanted:
        same = (n for n in range(at, len(lines)) if lines[n].does_as(line) and lines[n].is_safe_as(line))
        found = next(same, None)
        if found is not None and all(each.is_known for each in lines[at:found]):
            at = found + 1
        elif not may_miss:
            return False
    return all(each.is_known for each in lines[at:])
