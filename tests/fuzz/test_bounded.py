"""A few dozen cases of each kind, of fixed seeds; `python -m tests.fuzz KIND --minutes N` tries more."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fuzz.findings import Findings
from tests.fuzz.kinds import answer_quickly
from tests.fuzz.worker import Job, try_all

LONG: dict[str, frozenset[int]] = {"data": frozenset({34})}
"""Seeds that take half a minute: a Loop of 2^62 rounds, which ends with the memory of either process."""


@pytest.mark.parametrize(
    ("kind", "count", "least"), [("graphs", 80, 40), ("data", 40, 10), ("files", 60, 3), ("large", 10, 10)]
)
def test_nothing_is_found(kind: str, count: int, least: int) -> None:
    """And at least so many cases run, by both engines, to the same end: else nothing would be tried."""
    findings = Findings()
    seeds = [seed for seed in range(count) if seed not in LONG.get(kind, ())]
    try_all(answer_quickly, (Job(kind, seed) for seed in seeds), 1, findings.add)
    assert not findings.seen, findings.summary()
    assert sum(findings.verdicts.values()) == len(seeds)
    assert findings.verdicts["same"] >= least, findings.summary()


@pytest.mark.parametrize("side", ["after", "before"])
def test_nothing_outside_an_array_is_touched(side: str, tmp_path: Path) -> None:
    """In a process of its own, as the workers' server must start with the library that guards memory."""
    command = [sys.executable, "-m", "tests.fuzz", "graphs", "--guard", side, "--seed", "0", "--count", "24"]
    done = subprocess.run(
        [*command, "--out", str(tmp_path)], capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2]
    )
    assert re.search(r"^24 cases", done.stdout, re.MULTILINE), done.stdout + done.stderr
    assert not re.search(r"^ *\d+ (signal|broken|internal|untyped)$", done.stdout, re.MULTILINE), done.stdout
