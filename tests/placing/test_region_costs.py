"""Regions of a library that ends the process which measures, or does not come back, are not asked for any more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from fusion import context, pipeline
from fusion.frontends import import_model
from fusion.passes.regions import LibraryOffer
from fusion.placing.region_costs import MeasuredCosts
from tests.module.small_models import mlp
from tuning.decide import CandidateTimes, Decision
from tuning.known import Knowledge
from tuning.measuring_session import Results
from tuning.messages import Trial


@dataclass
class AnsweringSession:
    """Answers each question alike."""

    answer: Callable[[], Results]
    asked: int = 0

    def run(self, experiment: object) -> Results:
        self.asked += 1
        return self.answer()


def twice_as_fast() -> Results:
    times = (CandidateTimes(0, 2.0, 0.0, 1, 2.0), CandidateTimes(1, 1.0, 0.0, 1, 2.0))
    return Results([Decision(1, 1.0, 2.0, 1.0, 2, times)])


@pytest.mark.parametrize(
    ("answer", "expected", "asked"),
    [
        (twice_as_fast, [1.0, 2.0, 1.0], 2),
        (lambda: Results([], crashed=[Trial(0, 1)], reasons={Trial(0, 1): "it ended"}), [math.inf] * 3, 1),
        (lambda: Results([]), [math.inf] * 3, 2),  # it raises, or is wrong, there
    ],
    ids=["is faster", "ends the process", "is wrong"],
)
def test_regions(
    answer: Callable[[], Results], expected: list[float], asked: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(MeasuredCosts, "_saved", lambda *_, **__: "model.fusion")
    ctx = context.resolve(threads=1, backends=["onnxruntime", "cpu"], database=False)
    session: Any = AnsweringSession(answer)
    nothing: Any = None
    found = pipeline.regions_of(import_model(mlp(), strict=True).mod, ctx)
    costs = MeasuredCosts(
        imported=nothing, ctx=ctx, make=nothing, found=found,
        offers={1: LibraryOffer(found, ctx.graph_libraries["onnxruntime"])},
        knowledge=Knowledge.of(None, ctx.compiler), session=session, folder=tmp_path, all_cpu="", tolerance=1e-3,
    )  # fmt: skip
    parts = [(frozenset({0}), 2.0), (frozenset({0, 1}), 4.0), (frozenset({0}), 2.0)]
    assert [costs.region(1, operators, None, ours) for operators, ours in parts] == expected
    assert session.asked == asked
