"""The text of `explain`: every operator is in it, and a reason that many nodes have is there once."""

from __future__ import annotations

import onnx

import fusion
from fusion.report.explain import _explain_fallbacks
from fusion.signature import FallbackNode


def test_what_runs_on_the_host_is_listed() -> None:
    model = onnx.parser.parse_model(
        """
        <ir_version: 10, opset_import: ["": 18]>
        graph (float[3,4] x) => (float[N] y) {
            i = NonZero (x)
            t = Transpose <perm = [1, 0]> (i)
            y = GatherND (x, t)
        }
        """
    )
    text = fusion.compile(model, cache=False).explain()
    assert "called on the host:\n  nonzero 'i': fusion.nonzero" in text


def test_nodes_with_one_reason_share_a_line() -> None:
    few = [FallbackNode(*fields) for fields in (("Det", "a", "none"), ("Add", "c", "x"), ("Det", "b", "none"))]
    assert _explain_fallbacks(few) == ["  Det 'a', Det 'b': none", "  Add 'c': x"]
    many = [FallbackNode("Mul" if index % 3 else "Add", str(index), "int8") for index in range(189)]
    assert _explain_fallbacks(many) == ["  Add '0', Mul '1', Mul '2', Add '3' and 124 Mul, 61 Add more: int8"]


def test_open_dimensions_have_the_names_of_the_model() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (float[batch,3] x) => (float[batch,3] y) { y = Relu (x) }'
    )
    assert "inputs:  x float32[batch, 3]" in fusion.compile(model, cache=False).explain()
