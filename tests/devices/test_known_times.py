"""Plans rest on what a database knows of kernels."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from tvm import tirx

import fusion
from fusion.device_module import DeviceModule
from fusion.devices.known_times import with_known
from tests.devices.forced import TARGETS, needs_two_cpus
from tests.module import small_models
from tuning.database import Database
from tuning.known import Knowledge, KnownKernel
from tuning.record import Record

pytestmark = needs_two_cpus


def test_other_estimates_are_scaled_as_known_times_are_to_theirs() -> None:
    estimates = {"a": 1e-6, "b": 2e-6, "c": 4e-6, "none": 0.0}
    times = with_known(estimates, {"a": 3e-6, "b": 4e-6, "elsewhere": 1.0})
    assert times.seconds == pytest.approx({"a": 3e-6, "b": 4e-6, "c": 10e-6, "none": 0.0})
    assert "of 2 kernels were measured before" in times.source
    assert "those of 2 are estimates" in times.source
    assert with_known(estimates, {}).seconds == estimates
    assert "measured" not in with_known(estimates, {}).source


def test_plans_expect_what_a_database_knows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the points that kernels get: the default of one, a faster one of another. Both are looked up once."""
    database, asked = Database(tmp_path / "records"), list[dict[str, KnownKernel]]()
    find = Knowledge.kernels

    def note(self: Knowledge, funcs: Mapping[str, tirx.PrimFunc]) -> dict[str, KnownKernel]:
        asked.append(find(self, funcs))
        return asked[-1]

    monkeypatch.setattr(Knowledge, "kernels", note)
    fusion.compile(small_models.two_layers(), threads=1, database=database)
    first, second = asked.pop().values()
    faster = next(point for point in second.choices.space if point != second.choices.space.default)
    database.add([
        _record(first, first.choices.space.default.axes(), 3e-3, 3e-3),
        _record(second, second.choices.space.default.axes(), 8e-3, 8e-3),
        _record(second, faster.axes(), 5e-3, 8e-3, wins=True),
    ])  # fmt: skip
    module = fusion.compile(small_models.two_layers(), target=TARGETS, database=database)
    assert isinstance(module, DeviceModule)
    assert module.plans["latency"]["ms"] == pytest.approx(8.0, rel=0.05)
    assert "times of 2 kernels were measured before" in module.explain()
    assert len(asked) == 1


def _record(
    kernel: KnownKernel, point: Mapping[str, int], seconds: float, default_s: float, *, wins: bool = False
) -> Record:
    return Record(kernel.task, point, seconds, 0.0, 20, default_s, wins, measured_at=1e9)
