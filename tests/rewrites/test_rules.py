"""Every rule by its own example: it fires, the results agree, the cost falls, and what is almost the same stays."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import numpy as np
import pytest
import tvm
import tvm_ffi
from tvm import relax

from fusion.rewrites import RULES, Log, Rewrite
from fusion.rewrites.cost import GraphCost, cost
from fusion.rewrites.graph import RewriteGraph
from fusion.rewrites.rule import Example, Rule
from tests.passes.modules import canonical, evaluate_both, module

RULE = pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)


def inputs(example: Example) -> list[np.ndarray]:
    """Return numbers around 0, the first positive, so that roots of them exist."""
    random = np.random.default_rng(7)
    return [random.normal(0.5, 1.0, shape).astype("float32") for shape in example.shapes]


def apply(rules: tuple[Rule, ...], example: Example) -> tuple[tvm.IRModule, tvm.IRModule, Log]:
    before = module(example.build, inputs(example))
    result = Rewrite(rules).run(before)
    after = canonical(result.mod)
    relax.analysis.well_formed(after)
    return before, after, result.fact


def total(mod: tvm.IRModule) -> GraphCost:
    return cost(value for value in RewriteGraph(mod["main"]).values if value.op != "alias")


@RULE
@pytest.mark.parametrize("rules", ["alone", "all"])
def test_the_example_is_rewritten(rule: Rule, rules: str) -> None:
    before, after, log = apply((rule,) if rules == "alone" else RULES, rule.example)
    assert log.applied[rule.name] == 1
    assert rule.despite_cost or total(after).pays_against(total(before))
    arrays = inputs(rule.example)
    for got, want in zip(*evaluate_both(after, before, arrays), strict=True):
        # Of the largest: two roundings of float32 in a row of sums.
        np.testing.assert_allclose(got, want, rtol=0, atol=2e-6 * float(np.abs(want).max()))


@RULE
def test_the_near_miss_is_not(rule: Rule) -> None:
    before, after, log = apply((rule,), rule.near_miss)
    assert tvm_ffi.structural_equal(before, after)
    reasons = [reason for _, what, reason in log.declines.values if what == f"not rewritten by {rule.name}"]
    assert any(rule.declines in reason for reason in reasons) if rule.declines else not reasons


@RULE
def test_twice_is_the_same_as_once(rule: Rule) -> None:
    _, after, _ = apply(RULES, rule.example)
    again = Rewrite()(after)
    assert tvm_ffi.structural_equal(again, after)


def test_the_documentation_counts_rules_there_are() -> None:
    page = (Path(__file__).parents[2] / "docs" / "experiments" / "rewrites.md").read_text()
    table = page.partition("## Rewrites of the zoo")[2].partition("\n## ")[0]
    counted = re.findall(r"^\| (\w+) \| \d+ \| \d+ \|$", table, re.MULTILINE)
    assert counted
    assert [rule.name for rule in RULES if rule.name in counted] == counted


def test_every_rule_says_what_it_is() -> None:
    texts = [getattr(rule, field.name) for rule in RULES for field in dataclasses.fields(rule)[:4]]
    assert all(texts)
    assert len({rule.name for rule in RULES}) == len(RULES)
