"""Regions of a library that ends the process which measures, or does not come back, are not asked for any more."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tvm import relax
from tvm.relax.dpl import is_op, wildcard
from tvm.relax.transform import FusionPattern

from fusion import context, pipeline
from fusion.declined import Declined
from fusion.frontends import import_model
from fusion.passes.regions import LibraryOffer
from fusion.passes.regions.write import write_region
from fusion.placing.placement_bench import PlacementBench
from fusion.placing.region_costs import MeasuredCosts, _model_of
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
    return Results([Decision(1, 1.0, 2.0, 2, times)])


@pytest.mark.parametrize(
    ("answer", "expected", "asked"),
    [
        (twice_as_fast, [1.0, 2.0, 1.0, 1.0], 2),
        (lambda: Results([], crashed=[Trial(0, 1)], reasons={Trial(0, 1): "it ended"}), [math.inf] * 4, 1),
        (lambda: Results([], notes={Trial(0, 1): "it was wrong"}), [math.inf] * 4, 2),
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
        knowledge=Knowledge.of(None, ctx.compiler), bench=PlacementBench(session, tmp_path, 1e-3), all_cpu="",
    )  # fmt: skip
    # Where ours are faster in the network than alone the library is not.
    parts = [(frozenset({0}), 2.0), (frozenset({0, 1}), 4.0), (frozenset({0}), 2.0), (frozenset({0}), 0.5)]
    assert [costs.region(1, operators, None, ours) for operators, ours in parts] == expected
    assert session.asked == asked
    assert costs.failed == dict.fromkeys((1,) if answer().notes else (), "it was wrong")


def test_parts_of_regions_are_found_by_name(tmp_path: Path) -> None:
    """A region with several results has one operator more as a model, the tuple of them."""
    patterns = [FusionPattern("given.matmul", is_op("relax.matmul")(wildcard(), wildcard()))]
    library: Any = SimpleNamespace(patterns=patterns, version="1", export=print, open=print)
    ctx = context.resolve(threads=1, backends=["onnxruntime", "cpu"], database=False)
    ctx = replace(ctx, graph_libraries={"given": library})
    found = pipeline.regions_of(import_model(mlp(), strict=True).mod, ctx)
    nothing: Any = None
    costs = MeasuredCosts(
        imported=nothing, ctx=ctx, make=nothing, found=found, offers={}, knowledge=nothing, bench=nothing,
        all_cpu="",
    )  # fmt: skip
    parts = (frozenset({0}), frozenset({2}))
    for returned in ((2,), (0, 2)):
        kept = tuple(found.operators[at][0].var for at in returned)
        several = replace(found, result=kept[0] if len(kept) == 1 else relax.Tuple(kept))
        model = _model_of(write_region(several, frozenset({0, 1, 2})).function)
        placed: Any = costs._places(model, 1, parts)
        assert [group.operators for group in placed.groups if group.backend == 1] == list(parts)
        assert len(placed.names) == 3 + (len(returned) > 1)
    with pytest.raises(Declined, match="other matches"):
        costs._places(model, 1, (frozenset({1}),))
