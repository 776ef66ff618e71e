"""ONNX's node tests: outcomes may improve, and every improvement is recorded."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.onnx_nodes import table
from tests.onnx_nodes.suite import Worker

_EXPECTED = table.read_outcomes()


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    made = Worker("fusion")
    made.start()
    yield made
    made.stop()


@pytest.mark.parametrize("name", _EXPECTED)
def test_outcome(name: str, worker: Worker) -> None:
    expected, found = _EXPECTED[name], worker.run(name)
    better = table.RANK[found.outcome] > table.RANK[expected.outcome]
    hint = "record it with `python -m tests.onnx_nodes --write`" if better else found.reason
    assert found.outcome == expected.outcome, hint


def test_every_test_is_in_the_table(worker: Worker) -> None:
    assert set(_EXPECTED) == set(worker.names)


def test_table_meets_its_targets(worker: Worker) -> None:
    """At least 60% native; at least 90% native or fallback among tests on plain tensors without strings."""
    native = sum(found.outcome == "native" for found in _EXPECTED.values())
    running = sum(_EXPECTED[name].outcome != "unsupported" for name in worker.plain)
    assert native >= 0.6 * len(_EXPECTED)
    assert running >= 0.9 * len(worker.plain)


def test_nothing_that_plain_tvm_passes_is_worse_here() -> None:
    assert [name for name in sorted(table.read_plain_tvm()) if _EXPECTED[name].outcome != "native"] == []
