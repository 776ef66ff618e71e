"""The machine's limits are measured once, and again where what is kept is damaged, old, or of other threads."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from backends.machine_limits import Level, MachineLimits
from fusion.report import known_limits


@pytest.fixture
def measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The threads of each measurement, of which the first finds 100 GFLOP/s, the second 200, ..."""
    calls: list[int] = []

    def measure(threads: int) -> MachineLimits:
        calls.append(threads)
        return MachineLimits(threads, 100.0 * len(calls), (Level("L1", 1024, 50.0), Level("memory", 0, 10.0)))

    monkeypatch.setenv("FUSION_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("FUSION_CACHE_SIZE")
    monkeypatch.setattr(known_limits, "_measure", measure)
    return calls


def kept(tmp_path: Path) -> Path:
    (path,) = (tmp_path / "cache").rglob("*.limits")
    return path


def test_they_are_measured_once(measured: list[int]) -> None:
    first = known_limits.known_limits(2)
    assert known_limits.known_limits(2) == first
    assert known_limits.known_limits(1) != first
    assert measured == [2, 1]


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: text[:20],
        lambda text: "[]",
        lambda text: json.dumps(json.loads(text) | {"levels": []}),
        lambda text: json.dumps(json.loads(text) | {"peak_gflops": -1}),
        lambda text: json.dumps(json.loads(text) | {"measured": 0}),
        lambda text: json.dumps(json.loads(text) | {"measured": 1e18}),
    ],
    ids=["cut", "no fields", "no levels", "negative", "old", "of the future"],
)
def test_what_is_damaged_or_old_is_measured_again(damage: object, measured: list[int], tmp_path: Path) -> None:
    assert callable(damage)
    known_limits.known_limits(2)
    kept(tmp_path).write_text(damage(kept(tmp_path).read_text()))
    assert known_limits.known_limits(2).peak_gflops == 200
    assert known_limits.known_limits(2).peak_gflops == 200


def test_without_a_cache_they_are_measured_in_each_process(
    measured: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUSION_CACHE", "off")
    assert [known_limits.known_limits(2).peak_gflops for _ in range(2)] == [100, 200]
