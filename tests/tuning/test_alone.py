"""Kernels are measured without a network: the default and the points that were asked for, and no point twice."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from tvm import tirx

from backends.tensorir.result import Scheduled
from backends.tensorir.space import Point
from fusion import context
from fusion.measuring import kernels_of
from fusion.module.kernel_library import KernelLibrary
from fusion.pipeline import lower_graph
from tuning.alone import SpaceQuestion, build_questions, measure_questions
from tuning.experiment import Experiment
from tuning.known import Knowledge
from tuning.measuring_session import MeasuringSession, Results
from tuning.workloads import draw_workloads

CTX = context.resolve("llvm", threads=1)


@pytest.fixture(scope="module")
def questions() -> list[SpaceQuestion]:
    knowledge, found = Knowledge.of(None, CTX.compiler), list[SpaceQuestion]()
    for workload in draw_workloads(7, 20):
        funcs = kernels_of(lower_graph(workload.module(), CTX).mod)
        for name, kernel in knowledge.kernels(funcs).items():
            space = kernel.choices.space
            points = sorted((point for point in space if point != space.default), key=lambda point: point.cycles)[:3]
            if len(points) == 3 and workload.flops < 1e7:
                found.append(SpaceQuestion(funcs[name], kernel, frozenset({1}), [points[0], *points, space.default]))
    return found[:3]


def test_each_question_has_a_record_of_each_point(questions: list[SpaceQuestion], tmp_path: Path) -> None:
    toolchain = KernelLibrary(CTX.compiler)
    library = build_questions(questions, toolchain, tmp_path / "points.so", lambda: False)
    with MeasuringSession(tmp_path) as session:
        records = measure_questions(library, session, CTX.threads, 3, 20.0)
    for question in questions:
        own = [record for record in records if record.task == question.known.task]
        axes = [record.point for record in own]
        assert axes[0] == question.known.choices.space.default.axes()
        assert len(axes) == len({tuple(sorted(point.items())) for point in axes}) > 1
        assert all(question.known.choices.space.find(point) is not None for point in axes)
        assert all(0 < record.seconds < 1 and not record.wins for record in own)


@dataclass
class Asked:
    """A session that only notes what it is asked."""

    experiments: list[Experiment] = field(default_factory=list)

    def run(self, experiment: Experiment) -> Results:
        self.experiments.append(experiment)
        return Results()


def test_no_candidate_finds_weights_that_another_one_left_in_a_cache(
    questions: list[SpaceQuestion], tmp_path: Path
) -> None:
    """Each has its own, as far as there is memory for them; the rows are those that the default has read before."""
    library = build_questions(questions, KernelLibrary(CTX.compiler), tmp_path / "w.so", lambda: False)
    session: Any = Asked()
    measure_questions(library, session, CTX.threads, 3, 20.0)
    (experiment,) = session.experiments
    for place, question in enumerate(questions):
        assert question.copies > len(question.points) + 1
        before, candidates = experiment.steps[2 * place].candidates, experiment.steps[2 * place + 1].candidates
        calls = [call.arguments for (call,) in (*before, *candidates)]
        rows, weights = ({arguments[at] for arguments in calls} for at in (0, 1))
        assert len(rows) == 1
        assert len(weights) == len(calls)


def test_large_weights_have_few_copies(questions: list[SpaceQuestion]) -> None:
    source = tirx.PrimFunc([tirx.decl_buffer((1024, 4096), "float32")], tirx.Evaluate(0))
    assert replace(questions[0], source=source, weights=frozenset({0})).copies == 2


def test_what_is_late_is_left_out(questions: list[SpaceQuestion], tmp_path: Path) -> None:
    library = build_questions(questions, KernelLibrary(CTX.compiler), tmp_path / "none.so", lambda: True)
    assert not library.questions


def test_without_its_default_a_kernel_is_left_out(questions: list[SpaceQuestion], tmp_path: Path) -> None:
    choices = questions[0].known.choices

    def emit(point: Point) -> Scheduled:
        made = choices.emit(point)
        return replace(made, note="declined") if point == choices.space.default else made

    known = replace(questions[0].known, choices=replace(choices, emit=emit))
    refusing = replace(questions[0], known=known)
    library = build_questions([refusing], KernelLibrary(CTX.compiler), tmp_path / "rest.so", lambda: False)
    assert not library.questions
