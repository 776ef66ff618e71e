"""Operators in older sets than the newest: what ONNX Runtime runs, fusion runs with its numbers."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.onnx_nodes.older_sets import old_cases, verdict

pytestmark = pytest.mark.unoptimised

OPERATORS = ("clip", "slice", "softmax", "split", "squeeze", "unsqueeze", "reduce_mean", "upsample", "top_k", "pad")


@pytest.mark.parametrize("operator", OPERATORS)
def test_operator(operator: str) -> None:
    cases = [case for case in old_cases(1) if f"_{operator}" in case.name]
    assert cases
    counts = Counter(map(verdict, cases))
    assert set(counts) <= {"ok", "refused there"}
