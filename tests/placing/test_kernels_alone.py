"""What each kernel would take on a library is measured before any region is, all of a model at once."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from fusion import context, pipeline
from fusion.context import Context
from fusion.frontends import import_model
from fusion.frontends.imported import ImportedModel
from fusion.module.specialization import Specialization
from fusion.module.specialize import specialize
from fusion.passes.regions import LibraryOffer
from fusion.placing import kernels_alone
from fusion.placing.experiment import KernelExperiment
from fusion.placing.kernels_alone import measure_alone
from fusion.placing.measure_kernels import measure_kernels
from fusion.placing.placement_bench import PlacementBench, placement_bench
from fusion.placing.region_costs import MeasuredCosts
from fusion.placing.search import KernelCost
from tests.module.small_models import FLOAT, model
from tuning.known import Knowledge
from tuning.measuring_session import Results
from tuning.messages import Trial

SIZE = 24


def sums_and_products() -> onnx.ModelProto:
    """Return products and sums by turns, two kinds of kernels of which each is there twice."""
    nodes, last = [], "x"
    for place, op in enumerate(("MatMul", "CumSum", "MatMul", "CumSum")):
        nodes.append(helper.make_node(op, [last, "w" if op == "MatMul" else "axis"], [f"t{place}"]))
        last = f"t{place}"
    weights = {"w": np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32), "axis": np.array(1)}
    return model(nodes, [("x", FLOAT, [SIZE, SIZE])], [(last, FLOAT, [SIZE, SIZE])], weights)


def costs_of(folder: Path, bench: PlacementBench, library: Any = None) -> MeasuredCosts:
    ctx = context.resolve(threads=1, backends=["onnxruntime", "cpu"], database=folder / "records")
    if library is not None:
        ctx = replace(ctx, graph_libraries={"onnxruntime": library})
    imported = import_model(sums_and_products(), strict=True)
    found = pipeline.regions_of(imported.mod, ctx)
    return MeasuredCosts(
        imported=imported, ctx=ctx, make=make, found=found,
        offers={1: LibraryOffer(found, ctx.graph_libraries["onnxruntime"])},
        knowledge=Knowledge.of(ctx.database, ctx.compiler), bench=bench, all_cpu="",
    )  # fmt: skip


def make(imported: ImportedModel, ctx: Context) -> Specialization:
    return specialize(imported, pipeline.lower(imported, ctx), ctx)


KERNELS = [KernelCost(frozenset({place}), 1.0 + place) for place in range(4)]


def bench_that(folder: Path, run: Callable[[Any], Results]) -> PlacementBench:
    session: Any = SimpleNamespace(run=run)
    return PlacementBench(session, folder, 1e-3)


def refuses(_: object) -> Results:
    raise AssertionError("it measures again")


def test_kernels_without_calls_of_their_own_are_not_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An experiment without kernels decides nothing: it was asked for again and again, without end."""
    monkeypatch.setattr(kernels_alone, "_calls_of", lambda *_: [(), ()])
    costs = costs_of(tmp_path, bench_that(tmp_path, refuses))
    measure_alone(costs, KERNELS)
    assert not costs.alone


def test_each_kind_is_measured_once(tmp_path: Path) -> None:
    """Regions of one kernel are known then, and leave as many others to be measured as before."""
    with placement_bench(context.resolve(threads=1)) as bench:
        costs = costs_of(tmp_path, bench)
        measure_alone(costs, KERNELS)
    assert len(costs.alone) == 2
    costs.bench = refusing = bench_that(tmp_path, refuses)
    took = [costs.region(1, kernel.operators, None, kernel.seconds) for kernel in KERNELS]
    assert all(0.0 < each < math.inf for each in took)
    assert took[2] / took[0] == pytest.approx(3.0)
    again = costs_of(tmp_path, refusing)
    measure_alone(again, KERNELS)
    assert again.alone == costs.alone


@pytest.mark.parametrize("how", ["raises", "is wrong"])
def test_what_fails_is_not_taken(how: str, tmp_path: Path) -> None:
    """A part that another library exported opens nothing; one of another kernel returns something else."""
    library: Any = context.resolve(threads=1, backends=["onnxruntime", "cpu"]).graph_libraries["onnxruntime"]
    exported: list[bytes] = []

    def export(function: Any) -> bytes:
        exported.append(library.export(function))
        return b"none" if how == "raises" else exported[0]

    given = SimpleNamespace(version="1", why_not_taken=lambda _: "", export=export, open=library.open)
    with placement_bench(context.resolve(threads=1)) as bench:
        costs = costs_of(tmp_path, bench, given)
        measure_alone(costs, KERNELS)
    assert not costs.broken
    said = "it failed while it was measured" if how == "raises" else "its results were wrong while it was measured: an"
    assert costs.failed[1].startswith(said)
    took = [costs.region(1, kernel.operators, None, kernel.seconds) for kernel in KERNELS[:2]]
    assert (took.count(math.inf), len(costs.alone)) == (2 if how == "raises" else 1, 2)


def test_a_library_that_ends_the_process_is_asked_for_nothing_more(tmp_path: Path) -> None:
    asked: list[KernelExperiment] = []

    def ends(experiment: KernelExperiment) -> Results:
        asked.append(experiment)
        return Results([], crashed=[Trial(0, 1)], reasons={Trial(0, 1): "it ended"})

    costs = costs_of(tmp_path, bench_that(tmp_path, ends))
    measure_alone(costs, KERNELS)
    assert (costs.broken, costs.alone) == ({1: "it ended"}, set())
    assert costs.region(1, frozenset({0}), None, 1.0) == math.inf
    (experiment,) = asked
    measured = measure_kernels(experiment, [Trial(0, 1)]).decisions
    assert [[each.candidate for each in decision.times] for decision in measured] == [[0], [0]]
    assert not measure_kernels(replace(experiment, seconds=-1.0), []).decisions
