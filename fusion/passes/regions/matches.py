"""All matches of a library's patterns in a graph, those that have operators in common among them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice

import tvm
from tvm import relax
from tvm.relax.dpl.pattern import (
    AndPattern,
    AttrPattern,
    CallPattern,
    DataTypePattern,
    DFPattern,
    ExprPattern,
    OrPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
)
from tvm.relax.transform import FusionPattern, PatternCheckContext

from backends.backend import Library
from fusion.passes.rebuild import rebuild_main
from fusion.passes.regions.read import RegionGraph
from fusion.passes.take_subgraphs import name_calls

_Made = Mapping[DFPattern, DFPattern]

_MOST_FORMS = 64
"""Of a pattern; oneDNN's longest, two additions of either side and one of nine operators behind them, has 36."""


def all_matches(found: RegionGraph, library: Library) -> dict[frozenset[int], str]:
    """Return the operators of each match, and the name of its pattern: at each operator the match of each form of each
    pattern that passes the checks; of several of the same operators the first.

    They are in the order in which TVM's partitioner would take them: by pattern, and by the last operator.
    """
    names = Counter(found.graph.names)
    places = {name: place for place, name in enumerate(found.graph.names) if names[name] == 1}
    matched: list[tuple[int, int, str, frozenset[int]]] = []

    def tell(rank: int, pattern: str, calls: Sequence[str]) -> None:
        operators = frozenset(places[name] for name in calls if name in places)
        if len(operators) == len(calls) and not any(map(found.why_not_any, operators)):
            matched.append((rank, max(operators), pattern, operators))

    values = (binding.value for operator in found.operators for binding in operator)
    there = {value.op for value in values if isinstance(value, relax.Call)}
    patterns = list(_telling(library.patterns, there, tell))
    relax.transform.FuseOpsByPattern(patterns)(rebuild_main(found.mod, name_calls))
    matched.sort(key=lambda match: match[:2])  # of one pattern and operator the forms keep their order
    parts: dict[frozenset[int], str] = {}
    for _, _, pattern, operators in matched:
        parts.setdefault(operators, pattern)
    return parts


def _telling(
    patterns: Sequence[FusionPattern],
    there: set[relax.Expr],
    tell: Callable[[int, str, Sequence[str]], None],
) -> Iterator[FusionPattern]:
    """Yield each form of some patterns whose operators are `there`, which tells of each match the position and the name
    of its pattern, and the names of its calls; none then is taken, so that none hides another."""
    for rank, pattern in enumerate(patterns):
        check = _Check(pattern, partial(tell, rank))
        yield FusionPattern(pattern.name, pattern.pattern, pattern.annotation_patterns, check)
        # What it matches as a whole is among what its forms do, but where a call has more operands than its pattern:
        # no field says whether it may.
        for form, made in islice(_forms(pattern.pattern, {}), _MOST_FORMS):
            if form is not pattern.pattern and _operators(form) <= there:
                annotated = {name: made.get(part, part) for name, part in pattern.annotation_patterns.items()}
                yield FusionPattern(pattern.name, form, annotated, check)


@dataclass
class _Check:
    """Tells what matches a pattern and passes its check, and takes nothing.

    Attributes:
        pattern: The pattern.
        tell: Is told its name, and the names of the calls that matched.
        seen: Those calls that were looked at.
    """

    pattern: FusionPattern
    tell: Callable[[str, Sequence[str]], None]
    seen: set[tuple[str, ...]] = field(default_factory=set)

    def __call__(self, context: PatternCheckContext) -> bool:
        values = [context.matched_expr, *context.matched_bindings.values()]
        calls = (value for value in values if isinstance(value, relax.Call))
        names = tuple(sorted({str(call.span.source_name.name) for call in calls}))
        if names not in self.seen:
            self.seen.add(names)
            if self.pattern.check is None or self.pattern.check(context):
                self.tell(str(self.pattern.name), names)
        return False


def _forms(pattern: DFPattern, made: _Made) -> Iterator[tuple[DFPattern, _Made]]:
    """Yield `pattern` with one side of each choice in it, and what all its parts became; what is in `made` became that
    already: one object that is there twice is one operand."""
    if pattern in made:
        yield made[pattern], made
    elif isinstance(pattern, OrPattern):
        for side in (pattern.left, pattern.right):
            for form, after in _forms(side, made):
                yield form, {**after, pattern: form}
    else:
        children = _children(pattern)
        for forms, after in _forms_of_all(children, made):
            same = all(form is child for form, child in zip(forms, children, strict=True))
            form = pattern if same else _rebuilt(pattern, forms)
            yield form, {**after, pattern: form}


def _forms_of_all(patterns: Sequence[DFPattern], made: _Made) -> Iterator[tuple[list[DFPattern], _Made]]:
    if not patterns:
        yield [], made
        return
    first, *others = patterns
    for form, after in _forms(first, made):
        for forms, last in _forms_of_all(others, after):
            yield [form, *forms], last


def _operators(pattern: DFPattern) -> set[relax.Expr]:
    """Return the operators that a form calls."""
    if isinstance(pattern, ExprPattern):
        return {pattern.expr} if isinstance(pattern.expr, tvm.ir.Op) else set()
    return set().union(*map(_operators, _children(pattern)))


def _children(pattern: DFPattern) -> list[DFPattern]:
    """Return the patterns that one is made of; none where it is matched as it is."""
    if isinstance(pattern, CallPattern):
        return [pattern.op, *(pattern.args or ())]
    if isinstance(pattern, TuplePattern):
        return list(pattern.fields)
    if isinstance(pattern, AndPattern):
        return [pattern.left, pattern.right]
    if isinstance(pattern, TupleGetItemPattern):
        return [pattern.tuple]
    return [pattern.pattern] if isinstance(pattern, AttrPattern | DataTypePattern | ShapePattern | TypePattern) else []


def _rebuilt(pattern: DFPattern, children: Sequence[DFPattern]) -> DFPattern:
    """Return a pattern that is made of others."""
    first, *others = children
    if isinstance(pattern, CallPattern):
        return CallPattern(first, others)
    if isinstance(pattern, TuplePattern):
        return TuplePattern(list(children))
    if isinstance(pattern, AndPattern):
        return AndPattern(first, *others)
    if isinstance(pattern, TupleGetItemPattern):
        return TupleGetItemPattern(first, pattern.index)
    if isinstance(pattern, AttrPattern):
        return AttrPattern(first, pattern.attrs)
    if isinstance(pattern, DataTypePattern):
        return DataTypePattern(first, pattern.dtype)
    if isinstance(pattern, ShapePattern):
        return ShapePattern(first, pattern.shape)
    return TypePattern(first, pattern.ty)
