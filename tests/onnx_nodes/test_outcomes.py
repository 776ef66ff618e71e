"""ONNX's node tests: outcomes may improve, and every improvement is recorded."""

from __future__ import annotations

import pytest

from tests.onnx_nodes import table
from tests.onnx_nodes.suite import Outcome, run_all
from tests.onnx_nodes.worker import load_cases

# All in one process of pytest-xdist: the outcomes take minutes and are wanted once.
pytestmark = pytest.mark.xdist_group("onnx_nodes")

_REWRITE = "record it with `python -m tests.onnx_nodes --write`"


@pytest.fixture(scope="module")
def outcomes() -> dict[str, Outcome]:
    return run_all()


def test_every_test_is_in_the_table() -> None:
    assert set(table.read_outcomes()) == set(load_cases())


def test_nothing_got_worse(outcomes: dict[str, Outcome]) -> None:
    worse = [
        f"{name}: {expected.outcome} -> {outcomes[name].outcome} ({outcomes[name].reason})"
        for name, expected in table.read_outcomes().items()
        if table.RANK[outcomes[name].outcome] < table.RANK[expected.outcome]
    ]
    assert not worse, "\n".join(worse)


def test_what_got_better_is_recorded(outcomes: dict[str, Outcome]) -> None:
    better = [
        name
        for name, expected in table.read_outcomes().items()
        if table.RANK[outcomes[name].outcome] > table.RANK[expected.outcome]
    ]
    assert not better, f"{better} got better: {_REWRITE}"


def test_table_meets_its_targets() -> None:
    """At least 60% native; at least 90% native or fallback among tests on plain tensors without strings."""
    expected = table.read_outcomes()
    plain = [name for name, case in load_cases().items() if _on_plain_tensors(case.model.graph)]
    native = sum(found.outcome == "native" for found in expected.values())
    running = sum(expected[name].outcome != "unsupported" for name in plain)
    assert native >= 0.6 * len(expected)
    assert running >= 0.9 * len(plain)


def test_nothing_that_plain_tvm_passes_is_worse_here() -> None:
    expected = table.read_outcomes()
    assert [name for name in sorted(table.read_plain_tvm()) if expected[name].outcome != "native"] == []


def _on_plain_tensors(graph: object) -> bool:
    from onnx import TensorProto

    values = [*graph.input, *graph.output]  # type: ignore[attr-defined]
    return all(
        value.type.HasField("tensor_type") and value.type.tensor_type.elem_type != TensorProto.STRING
        for value in values
    )
