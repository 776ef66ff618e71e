"""Applies rules to a graph until none pays any more."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import tvm
import tvm_ffi

from fusion.declined import Declined, Declines
from fusion.facts import PassResult, TellingPass
from fusion.rewrites.cost import cost
from fusion.rewrites.graph import Emit, RewriteGraph, Value
from fusion.rewrites.rule import Rule
from fusion.rewrites.table import RULES


@dataclass
class Log:
    """What was done: how often each rule was applied, and why one was declined."""

    applied: Counter[str] = field(default_factory=Counter)
    declines: Declines = field(default_factory=Declines)

    def notes(self, origins: Mapping[str, str] = MappingProxyType({})) -> list[str]:
        """Return one sentence for all that was done, and those of `Declines.notes`."""
        applied = ", ".join(f"{count} {name}" for name, count in sorted(self.applied.items()))
        return [*([f"rewritten: {applied}"] if applied else []), *self.declines.notes(origins)]


@dataclass(frozen=True)
class Rewrite(TellingPass[Log]):
    """Applies `rules` until none does: every application lowers the cost of the graph, or has a reason despite it, and
    only what reads a changed value, or is the last to read one, is looked at again."""

    rules: tuple[Rule, ...] = RULES
    name: str = "rewrite"

    def run(self, mod: tvm.IRModule) -> PassResult[Log]:
        """Return the module on which no rule pays, and what was done."""
        graph = RewriteGraph(mod["main"])
        by_root: dict[str, list[Rule]] = {}
        for rule in self.rules:
            for root in rule.roots:
                by_root.setdefault(root, []).append(rule)
        log = Log()
        changed = _settle(graph, by_root, log)
        return PassResult(graph.write(mod) if changed else mod, log)


def _settle(graph: RewriteGraph, rules: dict[str, list[Rule]], log: Log) -> bool:
    waiting = _Queue(value for value in graph.values if value.op in rules)
    changed = False
    while value := waiting.pop():
        # Of what has a size that only the data tells, nobody knows what broadcasts.
        known = value.readers and value.is_known and all(arg.is_known for arg in value.args)
        for rule in rules.get(value.op, ()) if known else ():
            near = _apply(graph, rule, value, log)
            if near:
                log.applied[rule.name] += 1
                changed = True
                waiting.extend(each for each in near if each.op in rules)
                break
    return changed


def _apply(graph: RewriteGraph, rule: Rule, root: Value, log: Log) -> list[Value]:
    """Return the values to look at again, none where the rule does not apply."""
    emit = Emit(graph)
    try:
        found = rule.match(root)
        if found is None:
            return []
        made = emit.normal(rule.build(emit, root, found))
        if not tvm_ffi.structural_equal(made.ty, root.expr.ty):
            raise Declined(f"it broadcasts to {list(root.shape)}")
    except Declined as reason:
        log.declines.add(root.op, str(root.expr.name), f"not rewritten by {rule.name}", str(reason))
        return []
    proposal = graph.proposed(emit, made)
    new = [*proposal.new, *(() if proposal.known else (proposal.result,))]
    kept = {arg for value in new for arg in value.args} | ({proposal.result} if proposal.known else set())
    if not rule.despite_cost and not cost(new).pays_against(cost(graph.dying(root, kept))):
        graph.forget(emit)
        return []
    return graph.replace(root, proposal)


class _Queue:
    """Values in order, each at most once at a time."""

    def __init__(self, values: Iterable[Value]) -> None:
        self._values = deque(values)
        self._inside = set(self._values)

    def pop(self) -> Value | None:
        value = self._values.popleft() if self._values else None
        self._inside.discard(value) if value else None
        return value

    def extend(self, values: Iterable[Value]) -> None:
        for value in values:
            if value not in self._inside:
                self._inside.add(value)
                self._values.append(value)
