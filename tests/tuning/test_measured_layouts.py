"""Two layouts of a graph against each other."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fusion import context
from fusion.context import Context
from fusion.lowered_graphs import LoweredGraph
from fusion.measuring import MeasuredLayout
from fusion.module.kernel_library import KernelLibrary
from fusion.pipeline import lower_graph
from tests.passes.modules import module, normal
from tests.passes.test_choose_layout import POINTS, point_network
from tests.tuning.answers import Answers
from tuning.database import Database
from tuning.forms_bench import FormsBench
from tuning.known import Knowledge
from tuning.layouts import LayoutForm, MeasureLayouts, RecallLayouts
from tuning.measuring_session import MeasuringSession


@pytest.fixture(scope="module")
def ctx() -> Context:
    return context.resolve("llvm", threads=2)


@pytest.fixture(scope="module")
def layouts(ctx: Context) -> tuple[LoweredGraph, LoweredGraph]:
    """The layers of a point cloud as tensors lie, and with these moved, which is faster by estimate."""
    found: list[tuple[LoweredGraph, LoweredGraph]] = []

    def keep(lying: LoweredGraph, moved: LoweredGraph) -> LoweredGraph:
        found.append((lying, moved))
        return lying

    lower_graph(module(point_network, [normal(*POINTS)]), ctx, choose_layout=keep)
    return found[0]


def judge_of(ctx: Context, session: Any, folder: Path) -> MeasureLayouts:
    """Return what measures layouts, with a database in `folder`."""
    knowledge = Knowledge.of(Database(folder / "records"), ctx.compiler)
    return MeasureLayouts(knowledge, FormsBench(ctx.compiler, KernelLibrary(ctx.compiler), session, folder), 60.0)


@pytest.mark.parametrize(("candidate", "is_moved"), [(0, True), (1, False)])
def test_the_faster_layout_is_taken(
    candidate: int, is_moved: bool, ctx: Context, layouts: tuple[LoweredGraph, LoweredGraph], tmp_path: Path
) -> None:
    session = Answers(candidate)
    judge = judge_of(ctx, session, tmp_path)
    assert MeasuredLayout(ctx.compiler, judge)(*layouts) is layouts[is_moved]
    (experiment,) = session.asked
    measured = {call.symbol for calls in experiment.steps[0].candidates for call in calls}
    assert {"form0_max", "form1_max"} <= measured, "which read other tensors"
    assert not measured & {"form0_matmul2", "form1_matmul"}, "what both layouts have is left out"
    again = judge_of(ctx, session, tmp_path)
    assert MeasuredLayout(ctx.compiler, again)(*layouts) is layouts[is_moved]
    assert MeasuredLayout(ctx.compiler, RecallLayouts(again.knowledge))(*layouts) is layouts[is_moved]
    assert len(session.asked) == 1, "what is known is not measured again"
    assert again.notes == judge.notes != []


def test_what_one_layout_calls_more_often_is_measured_too(
    ctx: Context, layouts: tuple[LoweredGraph, LoweredGraph], tmp_path: Path
) -> None:
    session, seen = Answers(0), list[tuple[LayoutForm, LayoutForm]]()

    def keep(forms: tuple[LayoutForm, LayoutForm], estimated: int) -> int:
        seen.append(forms)
        return estimated

    MeasuredLayout(ctx.compiler, keep)(*layouts)
    ((lying, moved),) = seen
    again = next(call for call in lying.plan.calls if call.kernel == "matmul")  # what the other calls "matmul2"
    more = replace(lying, plan=replace(lying.plan, calls=(*lying.plan.calls, again)))
    judge_of(ctx, session, tmp_path)((more, moved), 0)
    (experiment,) = session.asked
    first, second = ([call.symbol for call in calls] for calls in experiment.steps[0].candidates)
    assert first.count("form0_matmul") == 1
    assert "form1_matmul2" not in second


def test_layouts_are_measured(ctx: Context, layouts: tuple[LoweredGraph, LoweredGraph], tmp_path: Path) -> None:
    with MeasuringSession(tmp_path) as session:
        judge = judge_of(ctx, session, tmp_path)
        MeasuredLayout(ctx.compiler, judge)(*layouts)
    (note,) = judge.notes
    assert "us as tensors lie" in note
    assert "us with tensors moved" in note


def test_a_graph_that_has_no_plan_is_estimated(
    ctx: Context, layouts: tuple[LoweredGraph, LoweredGraph], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*arguments: object) -> None:
        raise ValueError("no plan")

    monkeypatch.setattr("fusion.measuring.plan_calls", fails)
    knowledge = Knowledge(ctx.compiler, Knowledge.of(None, ctx.compiler).environment, None)
    assert MeasuredLayout(ctx.compiler, RecallLayouts(knowledge))(*layouts) is layouts[1]
