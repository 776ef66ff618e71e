"""A library of another package, found by its entry point, is taken where it is faster, and left out where it is not."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ml_dtypes import bfloat16
from onnx import helper

import fusion
from fusion import context, measuring, pipeline
from fusion.apart import broken, openings, process
from fusion.errors import ExecutionError
from fusion.frontends import import_model
from fusion.module.specialize import specialize
from fusion.placing import choose
from fusion.placing.choose import ChoosePlaces
from fusion.placing.compare import why_wrong
from placement.cover.places import GivenPlaces
from placement.cover.regions import PlacedSubgraph
from tests.backends.importable import importable
from tests.module.small_models import FLOAT, model
from tuning import measuring_session
from tuning.known import Knowledge

SIZE = 384
W = np.random.default_rng(0).standard_normal((SIZE, SIZE)).astype(np.float32)
X = np.random.default_rng(1).standard_normal((SIZE, SIZE)).astype(np.float32)
SOURCE = """
import os, pickle, time
import numpy as np

class Remembers:
    def __init__(self, version):
        self.version = version

    def export(self, function):
        steps = []
        for binding in function.body.blocks[0].bindings:
            if hasattr(binding.value, "op"):
                weights = [a.value.numpy() for a in binding.value.args if hasattr(getattr(a, "value", None), "numpy")]
                steps.append((binding.value.op.name, weights[0] if "matmul" in binding.value.op.name else None))
        return pickle.dumps(steps)

    def open(self, data, threads):
        if self.version == "crashes_opening" or "BREAKS_OPENING" in os.environ:
            os._exit(1)
        if self.version == "hangs_opening":
            time.sleep(60)
        steps, known = pickle.loads(data), []
        if self.version == "crashes_later" and any(weight is None for _, weight in steps):
            os._exit(1)

        def compute(x):
            for name, weight in steps:
                x = np.cumsum(x, 1) if weight is None else x @ weight
            return x

        def run(arrays):
            if self.version == "crashes":
                os._exit(1)
            if self.version == "raises":
                raise RuntimeError("out of order")
            if self.version == "hangs":
                time.sleep(60)
            if self.version == "sleeps" or any(weight is None for _, weight in steps):
                time.sleep(0.02)
            if not known or not np.array_equal(known[0], arrays[0]):
                known[:] = [arrays[0].copy(), compute(arrays[0])]
            return [np.zeros_like(known[1]) if self.version == "is_wrong" else known[1]]

        return run

class TakesRegions(Remembers):
    def why_not_taken(self, call):
        if self.version == "crashes_asked":
            os._exit(1)
        if self.version == "hangs_asked":
            time.sleep(60)
        taken = ("relax.matmul", "relax.cumsum") if self.version in ("mixed", "crashes_later") else ("relax.matmul",)
        return "" if call.op.name in taken else "it is no matmul"

class Matches(Remembers):
    @property
    def patterns(self):
        from tvm.relax.dpl import is_op, wildcard
        from tvm.relax.transform import FusionPattern
        matmul, cumsum = is_op("relax.matmul")(wildcard(), wildcard()), is_op("relax.cumsum")(wildcard())
        def is_taken(context):
            if "BREAKS_ASKED" in os.environ:
                os._exit(1)
            return True
        patterns = {"matching.matmul": matmul, "matching.cumsum": cumsum}
        if self.version == "hiding":
            patterns = {"hiding.both": is_op("relax.cumsum")(matmul), "hiding.matmul": matmul}
        return [FusionPattern(name, pattern, check=is_taken) for name, pattern in patterns.items()]

class HasNoVersion:
    def __init__(self, version):
        does = Matches(version)
        self.patterns, self.export, self.open = does.patterns, does.export, does.open

matching, hiding = Matches("matching"), Matches("hiding")
unversioned, unversioned_crashes = HasNoVersion("wins"), HasNoVersion("crashes_later")
"""
HANG = ("hangs", "hangs_opening", "hangs_asked")
FAIL = ("is_wrong", "raises", "crashes", "crashes_opening", "crashes_asked", *HANG)
NAMES = ("wins", "sleeps", "mixed", "crashes_later", *FAIL)
PATTERNS = ("matching", "hiding", "unversioned", "unversioned_crashes")


@pytest.fixture(autouse=True)
def _libraries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install libraries whose names say what they do; little time is taken for measurements."""
    monkeypatch.setattr(measuring, "_POINT_SECONDS", 0.1)
    monkeypatch.setattr(choose, "_SEARCH_SECONDS", 1.0)
    monkeypatch.setattr(choose, "_SECONDS", 1.0)
    monkeypatch.setattr(measuring_session, "_PATIENCE_S", 15.0)
    monkeypatch.setattr(process, "_PATIENCE_S", 15.0)
    _forget(monkeypatch)
    (tmp_path / "remembers.py").write_text(SOURCE + "".join(f"{name} = TakesRegions({name!r})\n" for name in NAMES))
    info = tmp_path / "remembers-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: remembers\nVersion: 1.0\n")
    lines = "".join(f"{name} = remembers:{name}\n" for name in (*NAMES, *PATTERNS))
    (info / "entry_points.txt").write_text(f"[fusion.backends]\n{lines}")
    with importable(tmp_path, "remembers", monkeypatch):
        yield


def _forget(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have libraries tried again, as in a new process."""
    monkeypatch.setattr(broken, "failures", {})
    monkeypatch.setattr(openings, "_opened", {})


def compiled(
    database: Path, names: Sequence[str], *, sums: bool = False, effort: str = "balanced", order: Sequence[str] = ()
) -> fusion.CompiledModule:
    """Return y = relu(x @ w), where libraries may have the product, or the sums along each row of x @ w."""
    last = helper.make_node("CumSum", ["a", "axis"], ["y"]) if sums else helper.make_node("Relu", ["a"], ["y"])
    nodes, weights = [helper.make_node("MatMul", ["x", "w"], ["a"]), last], {"w": W}
    if sums:
        weights["axis"] = np.array(1)
    proto = model(nodes, [("x", FLOAT, [SIZE, SIZE])], [("y", FLOAT, [SIZE, SIZE])], weights)
    backends = [*order, "cpu", *names, "onnxruntime"]
    return fusion.compile(proto, backends=backends, effort=effort, threads=1, cache=False, database=database)


def test_what_wins_is_taken_and_what_fails_is_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = ["crashes_opening", "wins", "sleeps", "is_wrong", "raises", "crashes", "crashes_asked", *HANG]
    module = compiled(tmp_path / "records", asked)
    report = module.explain()
    assert "wins runs 1 of 2 operators" in report
    assert "with regions on wins the model takes" in report
    assert re.search("with regions on sleeps .* ms, no clear gain", report)
    assert re.search("is_wrong runs nothing: its results were wrong .*: an error of .*, of which 0.001 is", report)
    assert [name for name in asked if f"{name} runs nothing" in report] == [each for each in asked if each in FAIL]
    np.testing.assert_allclose(module(X)[0], np.maximum(X @ W, 0), rtol=1e-3, atol=1e-3)

    module.save(tmp_path / "saved.fusion")
    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    assert "wins runs 1 of 2 operators" in compiled(tmp_path / "records", asked).explain()
    _breaks("BREAKS_OPENING", "wins", tmp_path / "records", asked, monkeypatch)
    with pytest.raises(ExecutionError, match="the backend 'wins' cannot open its part of the model"):
        fusion.load(tmp_path / "saved.fusion")


def _breaks(
    how: str, library: str, database: Path, asked: Sequence[str], monkeypatch: pytest.MonkeyPatch, *, sums: bool = False
) -> None:
    """Look whether a library that has won, and now ends whoever asks it, ends nothing of a compilation from records."""
    _forget(monkeypatch)
    monkeypatch.setenv(how, "")
    module = compiled(database, asked, sums=sums)
    told = f"the backend {library!r} failed and takes nothing: .*it crashed or hung while it was tried"
    assert len(re.findall(told, module.explain())) == 1, module.explain()
    assert module.placement.backends == ("cpu",)
    expected = np.cumsum(X @ W, 1) if sums else np.maximum(X @ W, 0)
    np.testing.assert_allclose(module(X)[0], expected, rtol=1e-3, atol=1e-2)


def test_libraries_alone_are_measured_against_each_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two that run all of a model the faster one does, whichever is named first; one that fails does not."""
    product, square = helper.make_node("MatMul", ["x", "w"], ["y"]), [SIZE, SIZE]
    proto = model([product], [("x", FLOAT, square)], [("y", FLOAT, square)], {"w": W})

    def placed(*names: str, effort: str = "balanced", database: str = "records") -> fusion.CompiledModule:
        return fusion.compile(
            proto, backends=names, effort=effort, threads=1, cache=False, database=tmp_path / database
        )

    for names, told in (
        (("sleeps", "wins"), "with regions first on wins the model takes"),
        (("wins", "sleeps"), "in the order of names the model takes"),
    ):
        module = placed(*names)
        assert module.placement.backends == ("wins",)
        assert module.placement.all_cpu_seconds is None
        assert told in module.explain()
        np.testing.assert_allclose(module(X)[0], X @ W, rtol=1e-3, atol=1e-3)
        assert placed(*names, effort="fast", database="none").placement.backends == (names[0],)
    assert placed("sleeps", "raises", "is_wrong").placement.backends == ("sleeps",)
    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    assert placed("sleeps", "wins", effort="fast").placement.backends == ("wins",)


@pytest.mark.parametrize("library", ["mixed", "matching", "hiding"])
def test_what_is_slow_elsewhere_stays(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library is faster at the product and slower at the sums, so that all that it takes is slower there; of one
    whose pattern of both comes first the product alone is a match, too."""
    module = compiled(tmp_path / "records", [library], sums=True)
    placement = module.placement
    assert [(part.backend, part.operators) for part in placement.parts] == [
        (library, ("matmul",)), ("cpu", ("cumsum",)),
    ], module.explain()  # fmt: skip
    assert placement.seconds is not None
    assert placement.all_cpu_seconds is not None
    assert placement.seconds < placement.all_cpu_seconds
    assert placement.parts[0].runner_up == "cpu"
    np.testing.assert_allclose(module(X)[0], np.cumsum(X @ W, 1), rtol=1e-3, atol=1e-2)
    monkeypatch.setattr(ChoosePlaces, "_measure", refuse)
    again = compiled(tmp_path / "records", [library], sums=True, effort="fast")
    assert again.placement == placement
    assert compiled(tmp_path / "none", [library], sums=True, effort="fast").placement.backends == ("cpu",)
    if library == "matching":
        _breaks("BREAKS_ASKED", library, tmp_path / "records", [library], monkeypatch, sums=True)


@pytest.mark.parametrize(
    ("library", "told"),
    [
        ("crashes_later", "failed and does not run a region: .*it crashed or hung while it opened a part of a model"),
        ("unversioned_crashes", "failed and takes nothing: .*it crashed or hung while it opened a part of a model"),
        ("unversioned", "matching.cumsum runs cumsum"),
    ],
)
def test_what_an_order_of_names_gives_to_a_library_is_opened_apart_first(
    library: str, told: str, tmp_path: Path
) -> None:
    """The first part that is tried opens; the second ends whoever opens it."""
    module = compiled(tmp_path / "records", [], sums=True, effort="fast", order=[library])
    assert re.search(told, module.explain()), module.explain()
    assert (module.placement.backends == ("cpu",)) is ("failed" in told)
    np.testing.assert_allclose(module(X)[0], np.cumsum(X @ W, 1), rtol=1e-3, atol=1e-2)


def refuse(*_: object) -> None:
    raise AssertionError("it measures again")


def test_kernels_beside_regions_are_timed_there(tmp_path: Path) -> None:
    """A ReLU is a kernel only where the product before it is elsewhere; so it is measured on libraries then."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("CumSum", ["b", "axis"], ["y"]),
    ]
    weights = {"w": W, "axis": np.array(1)}
    imported = import_model(model(nodes, [("x", FLOAT, [SIZE, SIZE])], [("y", FLOAT, [SIZE, SIZE])], weights))
    ctx = context.resolve(
        threads=1, backends=["onnxruntime", "cpu"], effort="balanced", database=tmp_path / "records"
    )
    names = pipeline.regions_of(imported.mod, ctx).graph.names
    groups = (PlacedSubgraph(frozenset({0}), 1), *(PlacedSubgraph(frozenset({place}), 0) for place in (1, 2)))
    placed = replace(ctx, places=GivenPlaces(names, groups), effort="fast")
    form = specialize(imported, pipeline.lower(imported, placed), placed)
    assert sorted(form.kernels) == ["cumsum", "relu"]
    chooses = ChoosePlaces(imported, ctx, lambda each, how: specialize(each, pipeline.lower(each, how), how))
    for _ in range(2):  # measured, and known
        times = chooses._parts("onnxruntime", form, Knowledge.of(ctx.database, ctx.compiler))
        for kernel in ("relu", "cumsum"):
            assert times[kernel].seconds is not None
            assert 0.0 < times[kernel].seconds < 0.1
            assert times[kernel].runner_up == "onnxruntime"
        chooses.ctx = replace(ctx, effort="fast")


def test_a_placement_is_one_of_a_precision() -> None:
    def structure(precision: str) -> str:
        libraries = {"remembers": SimpleNamespace(version="1")}
        ctx: Any = SimpleNamespace(precision=precision, libraries_only=False, graph_libraries=libraries)
        imported: Any = SimpleNamespace(mod=SimpleNamespace(script=lambda **_: "the model"), branches={}, inputs=())
        return ChoosePlaces(imported, ctx, make)._tasks(knowledge)["remembers"].structure

    make: Any = None
    knowledge: Any = SimpleNamespace(environment=None)
    assert structure("fp32") == structure("fp32") != structure("bf16")


def test_results_agree_within_a_share_of_the_largest() -> None:
    ours = np.array([1.0, -8.0, np.inf], dtype=np.float32)
    assert not why_wrong([ours], [ours + np.float32(0.007)], 1e-3)
    assert why_wrong([ours], [ours + np.float32(0.009)], 1e-3)
    assert not why_wrong([ours.astype(bfloat16)], [(ours + np.float32(0.1)).astype(bfloat16)], 3e-2)
