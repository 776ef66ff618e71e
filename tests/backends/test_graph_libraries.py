"""What every library of regions has to do: run what it takes as our kernels do, saved too, or say why not."""

from __future__ import annotations

import sys
import threading
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

import fusion
from backends import registry
from fusion.errors import ExecutionError, NotInstalledError, UnsupportedOperatorError
from fusion.frontends import import_model
from fusion.passes.regions import TakeRegions, read_regions
from placement.cover.places import GivenPlaces, PlacesByOrder
from placement.cover.regions import PlacedSubgraph
from tests.backends.opened_to_run import opened_to_run
from tests.backends.to_onnx.examples import FAMILIES, FamilyModule
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.kept_code import quick_kernels
from tests.module.small_models import FLOAT, mlp, mlp_numpy, model
from tests.naps import busy_nap
from tests.passes.random_graphs import random_graph

pytestmark = pytest.mark.usefixtures("one_process_apart")
LIBRARIES = ("openvino", "onnxruntime")
X = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)


def placed(source: object, library: str, **options: object) -> fusion.CompiledModule:
    return fusion.compile(source, backends=[library, "cpu", "onnxruntime"], threads=2, cache=False, **options)


@lru_cache(maxsize=1)
def of_our_kernels(family: str) -> tuple[FamilyModule, list[np.ndarray]]:
    """Return a module and what our kernels give, with which all libraries are compared."""
    made = FamilyModule.of(family)
    with quick_kernels():
        return made, list(fusion.compile(made.mod, threads=1, cache=False)(*made.values.values()))


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_each_operator(library: str, family: str) -> None:
    made, expected = of_our_kernels(family)
    with quick_kernels(), opened_to_run():
        found = placed(made.mod, library)(*made.values.values())
    for name, ours, theirs in zip(made.operators, expected, found, strict=True):
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("seed", range(8))
def test_random_graphs(library: str, seed: int) -> None:
    proto, inputs = random_graph(seed)
    with opened_to_run():
        module = placed(proto, library)
    expected = onnxruntime_runs(proto, inputs)
    for ours, theirs in zip(module.run(inputs).values(), expected, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("library", LIBRARIES)
def test_what_is_no_number_stays_so(library: str) -> None:
    """But OpenVINO's relu and softmax lose NaN, as docs/limits.md says."""
    x = X.copy()
    x[0, 0], x[1, 1], x[2, 2] = np.nan, np.inf, -np.inf
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Relu", ["x"], ["b"]),
        helper.make_node("Softmax", ["x"], ["c"], axis=1),
    ]
    outputs = [("a", FLOAT, [3, 4]), ("b", FLOAT, [3, 8]), ("c", FLOAT, [3, 8])]
    w = {"w": np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)}
    proto = model(nodes, [("x", FLOAT, [3, 8])], outputs, w)
    expected = fusion.compile(proto, cache=False)(x)
    same = 1 if library == "openvino" else 3
    for ours, theirs in list(zip(placed(proto, library)(x), expected, strict=True))[:same]:
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("batch", [0, 1, 5])
def test_sizes(library: str, batch: int) -> None:
    x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
    np.testing.assert_allclose(placed(mlp(batch), library)(x)[0], mlp_numpy(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_form_for_all_sizes_keeps_to_our_kernels(library: str) -> None:
    module = placed(mlp("n"), library)
    for batch in (1, 4, 7):
        x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
        np.testing.assert_allclose(module(x, wait=True)[0], mlp_numpy(x), rtol=1e-4, atol=1e-5)
    assert f"{library} runs no region: their models are for one size of each dimension" in module.explain()


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_whole_region_runs_and_is_saved(library: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    module = placed(mlp(), library)
    assert f"{library} runs 3 of 3 operators in 1 region" in module.explain()
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-4, atol=1e-5)
    module.save(tmp_path / "saved.fusion")
    np.testing.assert_array_equal(fusion.load(tmp_path / "saved.fusion")(X)[0], module(X)[0])
    monkeypatch.setitem(sys.modules, library, None)
    with pytest.raises(NotInstalledError, match=f"pip install {library}"):
        fusion.load(tmp_path / "saved.fusion")


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("results", ["one of two", "too many", "another shape", "another dtype"])
def test_who_returned_what_is_no_result_is_named(
    library: str, results: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wrong = {"one of two": [X], "too many": [X] * 3, "another shape": [X, X[:2]], "another dtype": [X, X.astype(int)]}
    monkeypatch.setattr(type(registry.library(library)), "open", lambda *_: lambda _: wrong[results])
    nodes = [helper.make_node("Relu", ["x"], ["y"]), helper.make_node("Softmax", ["y"], ["z"], axis=1)]
    module = placed(model(nodes, [("x", FLOAT, [3, 8])], [("y", FLOAT, [3, 8]), ("z", FLOAT, [3, 8])]), library)
    module.save(tmp_path / "saved.fusion")
    for each in (module, fusion.load(tmp_path / "saved.fusion")):
        with pytest.raises(ExecutionError, match=f"the backend '{library}' returned another shape") as raised:
            each(X)
        assert f"without '{library}'" in raised.value.hint


def test_a_region_whose_results_go_two_ways_is_credited_with_its_operators(tmp_path: Path) -> None:
    """A region of two results, one read by our kernel of TopK, whose values get the names that those have, the other by
    a fallback."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        helper.make_node("Softmax", ["r"], ["s"], axis=-1),
        helper.make_node("TopK", ["s", "k"], ["best", "at"], axis=-1),
        helper.make_node("Unsqueeze", ["s", "axis"], ["scores"]),
        helper.make_node("NonMaxSuppression", ["boxes", "scores", "most", "overlap"], ["selected"]),
    ]
    weights = {
        "w": np.random.default_rng(2).standard_normal((8, 20)).astype(np.float32),
        **{name: np.array([number]) for name, number in (("k", 3), ("axis", 1), ("most", 4))},
        "overlap": np.array([0.5], np.float32),
    }
    inputs = [("x", FLOAT, [3, 8]), ("boxes", FLOAT, [3, 20, 4])]
    integer = int(TensorProto.INT64)
    outputs = [("best", FLOAT, [3, 3]), ("at", integer, [3, 3]), ("selected", integer, ["n", 3])]
    module = placed(model(nodes, inputs, outputs, weights), "openvino")
    assert "openvino runs 4 of 7 operators in 1 region:" in module.explain()
    module.save(tmp_path / "saved.fusion")
    for each in (module, fusion.load(tmp_path / "saved.fusion")):
        region, ours, fallback = each.placement.parts
        assert (region.backend, region.names) == ("openvino", ("h", "r", "s", "scores"))
        assert (ours.backend, ours.operators) == ("cpu", ("topk",))
        assert (fallback.backend, fallback.names) == ("onnxruntime", ("selected",))


@pytest.mark.parametrize("library", LIBRARIES)
def test_several_callers(library: str) -> None:
    module = placed(mlp(), library)
    inputs = [np.random.default_rng(seed).standard_normal((3, 8)).astype(np.float32) for seed in range(40)]
    found = list(module.map(inputs, workers=4))
    for x, (y,) in zip(inputs, found, strict=True):
        np.testing.assert_allclose(y, mlp_numpy(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("library", LIBRARIES)
def test_idle_threads_sleep(library: str) -> None:
    module = placed(mlp(), library)
    busy = busy_nap(lambda: [module(X) for _ in range(20)], 0.5, settle=0.2, enough=0.1)
    assert busy < 0.1, f"threads of {library} spin, of {threading.active_count()} of Python"


def test_behind_our_own_kernels_nothing_is_placed_on_a_guess() -> None:
    module = fusion.compile(mlp(), backends=["cpu", "openvino", "onnxruntime"], cache=False)
    assert "openvino runs" not in module.explain()
    assert "1 kernel in" in module.explain() or "kernels in" in module.explain()


@pytest.mark.parametrize("effort", ["fast", "balanced"])
@pytest.mark.parametrize("library", LIBRARIES)
def test_without_our_own_kernels_libraries_run_all(library: str, effort: str) -> None:
    module = fusion.compile(mlp("n"), backends=[library], effort=effort, threads=1, cache=False, database=False)
    for batch in (1, 0, 4):
        x = np.random.default_rng(batch).standard_normal((batch, 8)).astype(np.float32)
        np.testing.assert_allclose(module(x, wait=True)[0], mlp_numpy(x), rtol=1e-4, atol=1e-5)
    parts = module.placement.parts
    assert {part.backend for part in parts if part.operators} == {library}


def test_without_our_own_kernels_what_is_left_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each library takes what those before it leave."""
    nodes = [helper.make_node("MatMul", ["x", "w"], ["a"]), helper.make_node("Add", ["n", "n"], ["m"])]
    w = {"w": np.random.default_rng(1).standard_normal((8, 4)).astype(np.float32)}
    inputs = [("x", FLOAT, [3, 8]), ("n", TensorProto.INT64, [3])]
    proto = model(nodes, inputs, [("a", FLOAT, [3, 4]), ("m", TensorProto.INT64, [3])], w)
    with pytest.raises(UnsupportedOperatorError, match="openvino leaves 1 of 2 operators over: 1 add") as caught:
        fusion.compile(proto, backends=["openvino"], cache=False)
    assert "openvino does not take add: OpenVINO computes int64" in caught.value.why
    module = fusion.compile(proto, backends=["openvino", "onnxruntime"], cache=False)
    assert module.placement.backends == LIBRARIES
    np.testing.assert_array_equal(module(X, np.arange(3))[1], [0, 2, 4])
    monkeypatch.setitem(sys.modules, "openvino", None)
    with pytest.raises(UnsupportedOperatorError, match="no library is there, which leaves 2 of 2") as caught:
        fusion.compile(proto, backends=["openvino"], cache=False)
    assert "'openvino' is not installed" in caught.value.why


@pytest.mark.parametrize("op", ["LSTM", "GRU", "RNN"])
def test_without_our_own_kernels_onnxruntime_runs_recurrent_layers(op: str) -> None:
    proto, arrays = recurrent(op)
    module = fusion.compile(proto, backends=["openvino", "onnxruntime"], cache=False)
    backends = {part.backend: part.operators for part in module.placement.parts if part.operators}
    assert {*backends} <= {"openvino", "onnxruntime"}
    for ours, theirs in zip(module(*arrays), onnxruntime_runs(proto, {"x": arrays[0]}), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    kernel = op.lower()
    with pytest.raises(UnsupportedOperatorError, match=f"leaves 1 of 4 operators over: 1 {kernel}") as caught:
        fusion.compile(proto, backends=["openvino"], cache=False)
    assert caught.value.where == f"{op} 'y'"
    assert caught.value.why == f"openvino does not take {kernel}: ONNX has nothing for our kernel {kernel!r}"
    assert "or 'onnxruntime', which runs what ONNX has" in caught.value.hint


def recurrent(op: str) -> tuple[object, list[np.ndarray]]:
    """Return y = relu(a recurrent layer of x), and values of x."""
    rng, gates = np.random.default_rng(5), {"LSTM": 4, "GRU": 3, "RNN": 1}[op]
    shapes = {"w": (1, gates * 6, 8), "r": (1, gates * 6, 6), "b": (1, 2 * gates * 6)}
    weights = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [helper.make_node(op, ["x", *weights], ["y"], hidden_size=6), helper.make_node("Relu", ["y"], ["z"])]
    proto = model(nodes, [("x", FLOAT, [5, 2, 8])], [("z", FLOAT, [5, 1, 2, 6])], weights)
    return proto, [rng.standard_normal((5, 2, 8)).astype(np.float32)]


def test_which_branch_runs_is_no_operator_of_a_backend() -> None:
    results = [(name, FLOAT, [3, 8]) for name in ("y", "z")]
    sides = {
        f"{side}_branch": helper.make_graph(
            [helper.make_node(op, ["x"], [side])], side, [], [helper.make_tensor_value_info(side, FLOAT, [3, 8])]
        )
        for side, op in (("then", "Relu"), ("else", "Exp"))
    }
    nodes = [
        helper.make_node("ReduceSum", ["x"], ["s"], keepdims=0),
        helper.make_node("Greater", ["s", "zero"], ["c"]),
        helper.make_node("If", ["c"], ["y"], **sides),
        helper.make_node("Tanh", ["y"], ["z"]),
    ]
    proto = model(nodes, [("x", FLOAT, [3, 8])], results, {"zero": np.float32(0)})
    module = fusion.compile(proto, backends=["onnxruntime"], cache=False)
    assert {part.backend for part in module.placement.parts if part.operators != ("if",)} == {"onnxruntime"}
    for x in (np.abs(X), -np.abs(X)):
        np.testing.assert_allclose(module(x)[0], np.maximum(x, 0) if x[0, 0] > 0 else np.exp(x), rtol=1e-6)
    with pytest.raises(UnsupportedOperatorError) as caught:  # an operator within a branch
        fusion.compile(proto, backends=["onednn"], cache=False)
    assert "onednn does not take exp" in caught.value.why
    assert "Exp 'else'" in caught.value.where


def test_what_became_other_operators_is_told_by_those() -> None:
    scale = {"s": np.float32(0.05), "o": np.uint8(120)}
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "o"], ["q"]),
        helper.make_node("DequantizeLinear", ["q", "s", "o"], ["y"]),
    ]
    proto = model(nodes, [("x", FLOAT, [3, 8])], [("y", FLOAT, [3, 8])], scale)
    with pytest.raises(UnsupportedOperatorError, match="openvino leaves 1 of 2 operators over: 1 quant") as caught:
        fusion.compile(proto, backends=["openvino"], cache=False)
    assert "openvino does not take astype: OpenVINO computes uint8 as other dtypes" in caught.value.why
    assert "QuantizeLinear 'q'" in caught.value.where


def test_one_that_is_not_installed_is_skipped(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setitem(sys.modules, "openvino", None)
    module = placed(mlp(), "openvino")
    told = "the backend 'openvino' is not installed and runs nothing; pip install openvino"
    assert told in module.explain()
    assert caplog.messages == [told]
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-4, atol=1e-5)


def test_one_that_cannot_be_imported_is_skipped(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise ImportError("libsomething.so is missing")

    monkeypatch.setitem(sys.modules, "openvino", Broken())  # type: ignore[arg-type]
    assert "cannot be imported and runs nothing: ImportError: libsomething.so is" in placed(mlp(), "openvino").explain()


@pytest.mark.parametrize("method", ["why_not_taken", "export", "open"])
def test_one_that_fails_runs_nothing(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("out of order")

    monkeypatch.setattr(type(registry.library("openvino")), method, fail)
    module = placed(mlp(), "openvino")
    assert "the backend 'openvino' failed" in module.explain()
    np.testing.assert_allclose(module(X)[0], mlp_numpy(X), rtol=1e-4, atol=1e-5)


def test_a_given_placement_is_of_its_graph_only() -> None:
    """The layers apart, so that what is between them is ours; of another graph nothing is placed."""
    mod = import_model(mlp(), strict=True).mod
    found = read_regions(mod)
    groups = tuple(PlacedSubgraph(frozenset({place}), int(place in (0, 2))) for place in found.graph.operators)
    take = TakeRegions({"openvino": registry.library("openvino")}, GivenPlaces(found.graph.names, groups), 1)
    taken = take.run(mod)
    assert [region.operators for region in taken.fact.regions] == [("matmul",), ("matmul",)]
    assert [region.backend for region in taken.fact.regions] == ["openvino"] * 2
    again = take.run(taken.mod)
    assert again.fact.regions == ()
    others = TakeRegions(take.libraries, GivenPlaces(("other",), groups), 1).run(mod)
    assert others.fact.regions == ()
    assert TakeRegions(take.libraries, PlacesByOrder(), 1).run(mod).mod is mod
