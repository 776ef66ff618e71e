"""docs/rewrites.md: every rule with its example and its near miss, as they run in the tests of the rules."""

from __future__ import annotations

from collections.abc import Iterator

import tvm

import fusion.rewrites.rules as files
from fusion.rewrites import RULES, Rewrite
from fusion.rewrites.rule import Example, Rule
from tests.passes.modules import canonical, module
from tests.rewrites.test_rules import inputs
from tests.tables.expressions import expression, shapes
from tests.tables.modules import file_of

_HEAD = """\
# Rules of rewriting

Written by `python -m tests.tables` from `fusion/rewrites/table.py`, in the order in which rules are tried on a value;
[why they are as they are](design/rewrites.md), and
[how often each applies](experiments/rewrites.md#rewrites-of-the-zoo). A rule is applied where the cost of
the graph falls, or for the reason that it gives. Examples and near misses run in `tests/rewrites/test_rules.py`;
`const` stands for a constant of that shape.
"""


def page() -> str:
    """Return the page."""
    return "\n".join([_HEAD, *(line for rule in RULES for line in _section(rule))])


def _section(rule: Rule) -> Iterator[str]:
    before, after, _ = _applied(rule, rule.example)
    stays, _, reasons = _applied(rule, rule.near_miss)
    yield f"## {rule.name}"
    yield f"`{rule.form}`"
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| example | `{expression(before)}`, {shapes(before)} |"
    yield f"| becomes | `{expression(after)}` |"
    yield f"| near miss | `{expression(stays)}`, {shapes(stays)} |"
    yield f"| stays, as | {'; '.join(reasons) or 'its pattern is another, or the cost would not fall'} |"
    yield f"| assumes | {rule.assumes} |"
    yield f"| from | {rule.source} |"
    yield f"| stands in | `{file_of(files, rule)}` |"
    if rule.despite_cost:
        yield f"| applied also where the cost does not fall, as | {rule.despite_cost} |"
    yield ""


def _applied(rule: Rule, example: Example) -> tuple[tvm.IRModule, tvm.IRModule, list[str]]:
    """Return a module before and after `rule` alone, and why it was declined."""
    before = module(example.build, inputs(example))
    result = Rewrite((rule,)).run(before)
    declined = result.fact.declines.values
    return before, canonical(result.mod), [why for _, what, why in declined if what == f"not rewritten by {rule.name}"]
