"""The committed expectations: one outcome per node test, and the tests that plain TVM passes."""

from __future__ import annotations

import json
from pathlib import Path

from tests.onnx_nodes.suite import Outcome

_HERE = Path(__file__).parent
OUTCOMES = _HERE / "outcomes.json"
PLAIN_TVM = _HERE / "plain_tvm.json"
RANK = {"unsupported": 0, "fallback": 1, "native": 2}

# Plain TVM takes an optional input for a tensor that is always there, and so passes these; the tests of the same models
# with an empty optional fail on it. Here the whole model runs on ONNX Runtime, and both kinds pass.
PASSED_BY_MISREADING = frozenset(
    {
        "test_optional_get_element_optional_tensor",
        "test_optional_has_element_optional_input",
        "test_optional_has_element_tensor_input",
    }
)


def read_outcomes() -> dict[str, Outcome]:
    """Return the expected outcomes by test name."""
    return {name: Outcome(*row) for name, row in json.loads(OUTCOMES.read_text()).items()}


def write_outcomes(outcomes: dict[str, Outcome]) -> None:
    """Replace the expectations, one line per test."""
    rows = [
        f"{json.dumps(name)}: {json.dumps([found.outcome, found.reason])}" for name, found in sorted(outcomes.items())
    ]
    OUTCOMES.write_text("{\n" + ",\n".join(rows) + "\n}\n")


def read_plain_tvm() -> set[str]:
    """Return the names of the tests that TVM's own ONNX importer and default pipeline rightly pass."""
    return set(json.loads(PLAIN_TVM.read_text())) - PASSED_BY_MISREADING


def write_plain_tvm(outcomes: dict[str, Outcome]) -> None:
    """Replace the list of tests that plain TVM passes."""
    names = sorted(name for name, found in outcomes.items() if found.outcome == "native")
    PLAIN_TVM.write_text(json.dumps(names, indent=0) + "\n")
