"""`python -m bench.tuning.against_metaschedule`: which of our compilations is as fast, and the report."""

from __future__ import annotations

import pytest

from bench.gate import Verdict
from bench.peers import OURS
from bench.protocol import BASELINE
from bench.result import ComparisonResult, EngineResult
from bench.tuning.against_metaschedule import MEASURED, THEIRS, seconds_to_reach, text


@pytest.mark.parametrize(
    ("ours_ms", "measured_ms", "reached_s"), [(0.9, 0.8, 2.0), (1.0, 0.8, 2.0), (1.1, 0.8, 8.0), (1.1, 1.1, None)]
)
def test_the_first_compilation_that_is_as_fast(ours_ms: float, measured_ms: float, reached_s: float | None) -> None:
    result = ComparisonResult("matmul", {}, 2)
    result.engines = {
        OURS: EngineResult([ours_ms], compile_s=2.0, verdict=Verdict()),
        MEASURED: EngineResult([measured_ms], compile_s=8.0),
        THEIRS: EngineResult([1.0], compile_s=240.0),
        BASELINE: EngineResult([1.5], compile_s=0.1),
    }
    assert seconds_to_reach(result) == reached_s
    row = text([result]).splitlines()[4]
    assert f"| {1 / measured_ms:.2f} " in row
    assert ("1/120" in row, "1/30" in row) == (reached_s == 2.0, reached_s == 8.0)


def test_without_their_numbers() -> None:
    result = ComparisonResult("matmul", {}, 2)
    names = (OURS, MEASURED, BASELINE)
    result.engines = {name: EngineResult([1.0], compile_s=1.0, verdict=Verdict()) for name in names}
    result.engines[THEIRS] = EngineResult(failure="it crashed")
    assert seconds_to_reach(result) is None
    assert "it crashed" in text([result])
