"""What a family's lowerings take and decline: its examples, and calls that are near misses."""

from __future__ import annotations

from typing import Any

import pytest

from backends.cpu.kernels import priority
from backends.cpu.kernels.template import Template
from backends.cpu.lowerings import lowerings
from backends.tensorir.lower_anchors import LowerAnchors
from tests.backends.cpu.kernels.anchored import normal
from tests.backends.cpu.kernels.examples import Example, NearMiss, examples_of, near_misses_of
from tests.passes.modules import module

MISSES = [
    pytest.param(template, miss, id=f"{template.name}-{miss.build.__name__}")
    for template in priority.TEMPLATES
    for miss in near_misses_of(template)
]


def declined(example: Example | NearMiss) -> list[str]:
    """Return what is noted of a graph in which calls are lowered."""
    mod = module(example.build, [normal(example.shape, 0)])
    return LowerAnchors(lowerings(16)).run(mod).fact.declines.notes()


@pytest.mark.parametrize(("template", "miss"), MISSES)
def test_a_lowering_says_why_it_declines(
    template: Template[Any, Any], miss: NearMiss, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priority, "TEMPLATES", (template,))
    (note,) = declined(miss)
    assert note.split(": ", 1)[1] == f"not lowered to {template.name}: {miss.reason}"


@pytest.mark.parametrize("template", priority.TEMPLATES, ids=lambda template: template.name)
def test_examples_are_lowered(template: Template[Any, Any]) -> None:
    for example in examples_of(template):
        assert not isinstance(example, Example) or declined(example) == []
