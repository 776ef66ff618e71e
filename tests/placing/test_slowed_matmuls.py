"""Where our kernels are slowed at the matmuls of a real model, exactly these move to a library that usually is no
faster."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from backends import registry
from fusion import context, pipeline
from fusion.bindings import call_name
from fusion.errors import NotInstalledError
from fusion.frontends import import_model
from fusion.module.plan import KernelCall
from fusion.module.program import KernelProgram
from fusion.module.specialization import Specialization
from fusion.passes.regions import LibraryOffer, RegionGraph
from fusion.placing import kernel_costs as costs_module
from fusion.placing.search import SearchedLibrary, search_placement
from placement.cover.places import TakenOperators
from placement.cover.problem import HOST
from placement.cover.regions import PlacedSubgraph
from tests.module.small_models import FLOAT, model

SIZE, MATMUL, CALL = 16, "matmul", 0.1


def chain() -> onnx.ModelProto:
    """Return sums along rows between three products, each of which is a kernel."""
    nodes, last = [], "x"
    for place, op in enumerate(("MatMul", "CumSum", "MatMul", "CumSum", "MatMul")):
        nodes.append(helper.make_node(op, [last, "w" if op == "MatMul" else "axis"], [f"t{place}"]))
        last = f"t{place}"
    values = {"w": np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32), "axis": np.array(1)}
    return model(nodes, [("x", FLOAT, [SIZE, SIZE])], [(last, FLOAT, [SIZE, SIZE])], values)


@dataclass
class LibraryCosts:
    """The library takes a second for a matmul, as our kernels usually do, two for all else, and a call more."""

    found: RegionGraph
    slowed: float

    def region(
        self, backend: int, operators: frozenset[int], parts: tuple[frozenset[int], ...] | None, ours: float
    ) -> float:
        return CALL + sum(1.0 if is_matmul(self.found, each) else 2.0 for each in operators)

    def whole(self, groups: Sequence[PlacedSubgraph]) -> float:
        here = [each for group in groups if group.backend == HOST for each in group.operators]
        there = (self.region(group.backend, group.operators, None, 0.0) for group in groups if group.backend != HOST)
        return sum(there) + sum(self.slowed if is_matmul(self.found, each) else 1.0 for each in here)


def is_matmul(found: RegionGraph, operator: int) -> bool:
    return any(call_name(binding.value) == MATMUL for binding in found.operators[operator])


def parts_of(name: str, found: RegionGraph) -> TakenOperators:
    """Return what the patterns of a library match."""
    try:
        library: Any = registry.library(name)
    except NotInstalledError as error:
        pytest.skip(str(error))
    return LibraryOffer(found, library).taken


@pytest.fixture(scope="module")
def form() -> Specialization:
    """The model on our kernels alone."""
    (only,) = fusion.compile(chain(), threads=1, cache=False).specializations
    return only


def test_all_operators_have_a_kernel(form: Specialization) -> None:
    """That which makes the model's only result, too, which passes rename."""
    found = pipeline.regions_of(import_model(chain(), strict=True).mod, context.resolve(threads=1))
    calls = costs_module.calls_of(found, form)
    assert sorted(calls.values(), key=min) == [frozenset({at}) for at in range(5)]


def test_kernels_are_timed_on_the_threads_of_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the process has run nothing yet on as many."""
    (form,) = fusion.compile(chain(), threads=2, cache=False).specializations
    asked: list[int] = []
    assert isinstance(form.program, KernelProgram)
    monkeypatch.setattr(type(form.program.library), "use_threads", lambda _, count: asked.append(count))
    mod = import_model(chain(), strict=True).mod
    costs_module.kernel_costs(pipeline.regions_of(mod, context.resolve(threads=2)), form)
    assert asked == [2]


@pytest.mark.parametrize("library", ["all operators", "onednn"])
@pytest.mark.parametrize(("slowed", "moves"), [(1.0, False), (3.0, True)])
def test_exactly_the_matmuls_move(
    form: Specialization, slowed: float, moves: bool, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    operators = {str(name): kernel.ops for name, kernel in form.kernels.items()}

    def time_calls(program: KernelProgram, *_: object) -> tuple[list[KernelCall], list[float]]:
        calls = list(program.plan.calls)
        return calls, [slowed if MATMUL in operators[call.kernel] else 1.0 for call in calls]

    monkeypatch.setattr(costs_module, "time_calls", time_calls)
    mod = import_model(chain(), strict=True).mod
    found = pipeline.regions_of(mod, context.resolve(threads=1))
    kernels = costs_module.kernel_costs(found, form)
    takes = TakenOperators(frozenset(found.graph.operators)) if library == "all operators" else parts_of(library, found)
    libraries = {1: SearchedLibrary(takes)}
    groups = search_placement(found.graph, kernels, libraries, LibraryCosts(found, slowed), lambda: True)
    matmuls = {each for each in found.graph.operators if is_matmul(found, each)}
    assert len(matmuls) == 3 <= len(kernels) - 2
    where = {each: group.backend for group in groups for each in group.operators}
    assert {each for each, backend in where.items() if backend != HOST} == (matmuls if moves else set())
