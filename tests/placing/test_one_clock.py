"""Kernels and placements share one deadline."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fusion import context
from fusion.context import Context
from fusion.frontends import import_model
from fusion.measuring import MAX_SECONDS
from fusion.placing.choose import ChoosePlaces
from fusion.placing.records import REGIONS, placement_record
from fusion.system.deadline import Deadline
from tests.module.small_models import mlp
from tuning.known import Knowledge


def test_the_sooner_of_two() -> None:
    assert 9 < Deadline().within(10.0).left <= 10 < Deadline.after(30.0).before(15.0).left <= 15
    assert Deadline.after(5.0).within(10.0).left <= 5
    assert Deadline.after(-1.0).left < 0


@pytest.mark.parametrize(("effort", "more"), [("balanced", 0.0), ("max", MAX_SECONDS)])
@pytest.mark.parametrize(("is_known", "seconds"), [(False, 120.0), (True, 15.0)])
def test_a_known_placement_leaves_kernels_less_time(
    effort: str, more: float, is_known: bool, seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def form(choosing: ChoosePlaces, name: str, ctx: Context) -> None:
        raise TimeoutError(ctx.deadline.left)

    monkeypatch.setattr(ChoosePlaces, "_form", form)
    backends = ["onnxruntime", "cpu"]
    ctx = context.resolve(threads=1, backends=backends, effort=effort, database=tmp_path / "records")
    make: Any = None
    choosing = ChoosePlaces(import_model(mlp(), strict=True), ctx, make)
    knowledge = Knowledge.of(ctx.database, ctx.compiler)
    if is_known:
        tasks = choosing._tasks(knowledge).values()
        knowledge.keep([placement_record(task, REGIONS, None, 0.0) for task in tasks])
    with pytest.raises(TimeoutError) as left:
        choosing()
    assert seconds + more - 10 < left.value.args[0] <= seconds + more
