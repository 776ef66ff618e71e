"""The walk-throughs of docs/architecture.md, followed: each says where a change goes, and that is all it takes.

The one of a backend is tests/backends/test_third_party.py.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from tvm import relax, tirx
from tvm.relax import op

import fusion
from backends.cpu.kernels import fallback_loops, priority
from backends.cpu.kernels.template import Template
from backends.cpu.machine import Machine
from backends.cpu.profitability import why_not_taken
from backends.tensorir.emit import Nest
from backends.tensorir.result import Scheduled
from backends.tensorir.space import Space
from backends.tensorir.stages import Stage, read_stages, substitute
from fusion.bindings import call_name
from fusion.declined import Declined
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.onnx import registry
from fusion.frontends.onnx.node import Node
from fusion.rewrites.graph import Value
from fusion.rewrites.rule import Example, Rule
from partition import rules
from tests.backends.cpu.kernels import memory_bound as kernels
from tests.backends.cpu.kernels.anchored import one_kernel
from tests.module.small_models import FLOAT, mlp, model
from tests.rewrites.test_rules import apply, total

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text()


def test_the_page_is_short_and_its_files_are_there() -> None:
    assert len(PAGE.splitlines()) <= 150
    walk_throughs = PAGE[PAGE.index("## Where do I add") : PAGE.index("## Why it is so")]
    assert walk_throughs.count("\n**A") == 5
    for path in re.findall(r"`([\w/]+/[\w./]*)`", walk_throughs):
        assert (ROOT / path).exists(), path


def test_an_onnx_operator(monkeypatch: pytest.MonkeyPatch) -> None:
    network = model([helper.make_node("Det", ["x"], ["y"])], [("x", FLOAT, [3, 2, 2])], [("y", FLOAT, [3])], {})
    with pytest.raises(UnsupportedOperatorError):
        fusion.compile(network, strict=True)
    monkeypatch.setattr(registry, "_CONVERTERS", dict(registry._CONVERTERS))

    @registry.converts("Det")
    def determinant(node: Node) -> relax.Expr:
        """Of matrices of 2 x 2: a d - b c."""
        a, b, c, d = (
            op.squeeze(op.strided_slice(node.x(0), [1, 2], [row, column], [row + 1, column + 1]), [1, 2])
            for row in (0, 1)
            for column in (0, 1)
        )
        return op.subtract(op.multiply(a, d), op.multiply(b, c))

    x = np.random.default_rng(0).standard_normal((3, 2, 2)).astype(np.float32)
    (expected,) = onnxruntime.InferenceSession(network.SerializeToString()).run(None, {"x": x})
    np.testing.assert_allclose(fusion.compile(network, strict=True)(x)[0], expected, rtol=1e-5, atol=1e-6)


def test_a_rewrite() -> None:
    def negated(root: Value) -> Any:
        inner = root.args[0]
        return inner.args[0] if inner.op == "negative" else None

    rule = Rule(
        name="double_negative",
        form="-(-x)  ->  x",
        source="arithmetic",
        assumes="nothing",
        roots=frozenset(("negative",)),
        match=negated,
        build=lambda emit, root, value: value.expr,
        example=Example(lambda builder, x: op.negative(builder.emit(op.negative(x))), ((4, 8),)),
        near_miss=Example(lambda builder, x: op.negative(builder.emit(op.abs(x))), ((4, 8),)),
    )
    before, after, log = apply((rule,), rule.example)
    assert log.applied[rule.name] == 1
    assert total(after).pays_against(total(before))
    assert not any(call_name(binding.value) for block in after["main"].body.blocks for binding in block.bindings)
    assert not apply((rule,), rule.near_miss)[2].applied


def test_a_fusion_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    why_not = rules._why_not_epilogue
    monkeypatch.setattr(
        rules,
        "_why_not_epilogue",
        lambda group, node: "it is a relu" if "relu" in node.name else why_not(group, node),
    )
    explained = fusion.compile(mlp()).explain()
    assert "it is a relu" in explained
    assert len(re.findall(r"\d+ kernels?", explained)) == 1


@dataclass(frozen=True)
class Steps:
    """The point of the family below: elements of a step."""

    width: int
    cycles: float = 1.0


def read_vector(func: tirx.PrimFunc) -> Stage:
    """Return the one stage of a kernel that `is_vector`."""
    (stage,) = read_stages(func)
    if stage.iterations > 64:
        raise Declined("it is long")
    return stage


def is_vector(func: tirx.PrimFunc) -> bool:
    stages = read_stages(func)
    return len(stages) == 1 and stages[0].combine is None and len(stages[0].spatial) == 1


def emit_vector(func: tirx.PrimFunc, stage: Stage, machine: Machine, point: Steps) -> Scheduled:
    nest, (axis,) = Nest(), stage.spatial
    with nest.loop("step", axis.extent // point.width) as step, nest.loop("element", point.width) as element:
        at = step * point.width + element
        nest.store(stage.buffer, [at], substitute(stage.value, {axis.var: at}))
    return Scheduled(func.with_body(nest.finish()), "vectors", f"steps of {point.width}")


def vector_space(stage: Stage, machine: Machine, threads: int) -> Space[Steps]:
    points = [Steps(width) for width in (4, 1) if stage.spatial[0].extent % width == 0]
    return Space(points[0], lambda: iter(points))


FAMILY = Template(name="vectors", read=read_vector, space=vector_space, emit=emit_vector, concerns=is_vector)


def with_family(family: Template[Any, Any]) -> tuple[Template[Any, Any], ...]:
    """Return the list with `family` before all that take any kernel."""
    claiming = [template for template in priority.TEMPLATES if template.claims]
    return (*claiming, family, *priority.TEMPLATES[len(claiming) :])


@pytest.mark.parametrize(
    ("shape", "said"),
    [([12], "steps of 4"), ([3], "steps of 1"), ([100], "vectors declined: it is long"), ([3, 4], "")],
)
def test_a_kernel_family(shape: list[int], said: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Those behind it get what it declines, and it says nothing of what has another form."""
    network = model([helper.make_node("Exp", ["x"], ["y"])], [("x", FLOAT, shape)], [("y", FLOAT, shape)])
    monkeypatch.setattr(priority, "TEMPLATES", with_family(FAMILY))
    compiled = fusion.compile(network)
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    np.testing.assert_allclose(compiled(x)[0], np.exp(x), rtol=1e-5)
    assert said in compiled.explain()
    assert ("vectors" in compiled.explain()) == bool(said)


def test_what_a_kernel_family_declines_is_judged_by_those_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {extent: one_kernel(lambda b, x: op.exp(x), [np.zeros(extent, "float32")]) for extent in (12, 100)}
    before = {extent: priority.recognise(kernel)[0] for extent, kernel in found.items()}
    monkeypatch.setattr(priority, "TEMPLATES", with_family(FAMILY))
    assert priority.recognise(found[12])[0] is FAMILY
    assert priority.recognise(found[100])[0] is before[100]
    assert [why_not_taken(kernel) for kernel in found.values()] == ["", ""]
    monkeypatch.setattr(priority, "TEMPLATES", (FAMILY, fallback_loops.TEMPLATE))
    assert why_not_taken(found[100]) == "it is long"


def test_a_kernel_family_that_fails_to_tell_its_form_is_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(func: tirx.PrimFunc) -> Any:
        raise ValueError("no such stage")

    monkeypatch.setattr(priority, "TEMPLATES", with_family(replace(FAMILY, concerns=fails, read=fails)))
    made = kernels.schedule(lambda builder, x: op.exp(x), [np.zeros(12, "float32")])
    assert made.note == "vectors failed: ValueError: no such stage"
