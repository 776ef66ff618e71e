"""What a family's lowerings take and decline: its examples, and calls that are near misses."""

from __future__ import annotations

from typing import Any

import pytest
import tvm

from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Template
from backends.cpu.lowerings import lowerings
from backends.tensorir.lower_anchors import LowerAnchors
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example, NearMiss, examples_of, near_misses_of
from tests.passes.modules import calls, module

MISSES = [
    pytest.param(template, miss, id=f"{template.name}-{miss.build.__name__}")
    for template in priority.TEMPLATES
    for miss in near_misses_of(template)
]
LOWERING = [template for template in priority.TEMPLATES if template.lowerings]


def declined(miss: NearMiss) -> list[str]:
    """Return what is noted of a graph in which calls are lowered."""
    mod = module(miss.build, [normal(miss.shape, 0)])
    return LowerAnchors(lowerings(16)).run(mod).fact.declines.notes()


def lowered_by(template: Template[Any, Any], mod: tvm.IRModule) -> list[str]:
    """Return the operators in `mod` that `template` has lowerings of."""
    return [name for name, _ in calls(mod) if f"relax.{name}" in template.lowerings]


@pytest.mark.parametrize(("template", "miss"), MISSES)
def test_a_lowering_says_why_it_declines(
    template: Template[Any, Any], miss: NearMiss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "TEMPLATES", (template,))
    (note,) = declined(miss)
    assert note.split(": ", 1)[1] == f"not lowered to {template.name}: {miss.reason}"


@pytest.mark.parametrize("template", LOWERING, ids=lambda template: template.name)
def test_examples_are_lowered(template: Template[Any, Any]) -> None:
    examples = [example for example in examples_of(template) if isinstance(example, Example)]
    graphs = [module(example.build, [example.data()]) for example in examples]
    assert any(lowered_by(template, graph) for graph in graphs)
    for graph in graphs:
        after = LowerAnchors(lowerings(16)).run(graph)
        assert lowered_by(template, after.mod) == []
        assert after.fact.declines.notes() == []
