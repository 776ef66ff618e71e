"""The walk-throughs of docs/architecture.md, followed: each says where a change goes, and that is all it takes.

The one of a backend is tests/backends/test_third_party.py.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import helper
from tvm import relax
from tvm.relax import op

import fusion
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.onnx import registry
from fusion.frontends.onnx.node import Node
from fusion.passes.rebuild import call_name
from fusion.rewrites.graph import Value
from fusion.rewrites.rule import Example, Rule
from partition import rules
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
    before, after, rewrite = apply((rule,), rule.example)
    assert rewrite.log.applied[rule.name] == 1
    assert total(after).pays_against(total(before))
    assert not any(call_name(binding.value) for block in after["main"].body.blocks for binding in block.bindings)
    assert not apply((rule,), rule.near_miss)[2].log.applied


def test_a_fusion_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    decline = rules._decline_epilogue
    monkeypatch.setattr(
        rules,
        "_decline_epilogue",
        lambda group, node: "it is a relu" if "relu" in node.name else decline(group, node),
    )
    explained = fusion.compile(mlp()).explain()
    assert "it is a relu" in explained
    assert len(re.findall(r"\d+ kernels", explained)) == 1
