"""`CompiledModule.placement`: where each operator runs, and what was measured of that."""

from __future__ import annotations

import logging
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import fusion
from fusion.cli.main import main
from fusion.compiled_module import CompiledModule
from fusion.model_graph import GraphCall, ModelGraph, Read, SourceOperator
from fusion.module.settings import Settings
from fusion.placement_times import PartTimes, PlacementTimes
from fusion.report.explain import as_dict
from fusion.report.placement import placement_in
from tests.frontends.narrow import networks, quantized
from tests.module.small_models import FLOAT, mlp, model


@pytest.fixture(scope="module")
def placed() -> CompiledModule:
    return fusion.compile(mlp(), backends=["onnxruntime", "cpu"], threads=1, cache=False)


def operators(module: CompiledModule) -> list[str]:
    return [name for part in module.placement.parts for name in part.names]


def test_each_operator_is_in_one_part() -> None:
    module = fusion.compile(mlp(), threads=1, cache=False)
    names = [each.name for each in module.specializations[0].graph().operators if each.op != "input"]
    assert sorted(operators(module)) == sorted(names)
    assert module.placement.backends == ("cpu",)
    assert module.placement.transfers == 0
    assert {part.seconds for part in module.placement.parts} == {None}
    assert f"placement: cpu: {len(names)} operators in" in module.explain()


def test_a_region_of_a_library_is_a_part(placed: CompiledModule) -> None:
    (part,) = placed.placement.parts
    assert part.backend == "onnxruntime"
    assert part.call.startswith("onnxruntime:")
    assert sorted(part.operators) == sorted(each.op for each in placed.specializations[0].graph().operators[1:])
    assert (part.seconds, part.runner_up, part.runner_up_seconds) == (None, None, None)
    assert placed.placement.transfers == 1
    assert "1 transfer" not in str(placed.placement)  # there is no other backend between which there would be


def test_a_saved_module_keeps_it(placed: CompiledModule, tmp_path: Path) -> None:
    (form,) = placed.specializations
    times = {key: PartTimes(0.001, "cpu", 0.003) for key in form.subgraphs}
    measured = replace(form, times=PlacementTimes(0.0015, 0.004, times))
    module = CompiledModule(form.inputs, form.outputs, placed.settings, fixed=measured)
    module.save(tmp_path / "saved.fusion")
    loaded = fusion.load(tmp_path / "saved.fusion")
    assert loaded.placement == module.placement
    (part,) = loaded.placement.parts
    assert (part.seconds, part.runner_up, part.runner_up_seconds) == (0.001, "cpu", 0.003)
    assert "(1.000 ms); a run takes 1.500 ms, all on cpu 4.000 ms" in loaded.explain()
    assert "3.000" in loaded.explain()
    assert as_dict(loaded)["forms"][0]["placement"]["parts"][0]["backend"] == "onnxruntime"


def test_what_a_frontend_left_to_onnx_runtime_is_not_told_as_on_cpu() -> None:
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["a"]),
        helper.make_node("Cast", ["a"], ["d"], to=TensorProto.DOUBLE),
        helper.make_node("MatMul", ["d", "v"], ["e"]),
        helper.make_node("Cast", ["e"], ["y"], to=TensorProto.FLOAT),
    ]
    weights = {"w": np.ones((256, 256), np.float32), "v": np.ones((256, 256))}
    module = fusion.compile(model(nodes, [("x", FLOAT, [64, 256])], [("y", FLOAT, [64, 256])], weights), cache=False)
    measured = replace(module.placement, seconds=0.001, all_cpu_seconds=0.002)
    assert [part.is_left for part in measured.parts] == [False, True]
    assert "a run takes 1.000 ms, all on cpu (but 1 MatMul, 1 Cast, which onnxruntime runs) 2.000 ms" in str(measured)


def test_what_was_measured_of_kernels_is_told_of_all_calls_of_each() -> None:
    nodes = [helper.make_node("CumSum", ["x", "axis"], ["a"]), helper.make_node("CumSum", ["a", "axis"], ["y"])]
    proto = model(nodes, [("x", FLOAT, [2, 3])], [("y", FLOAT, [2, 3])], {"axis": np.array(1)})
    module = fusion.compile(proto, threads=1, cache=False)
    (form,) = module.specializations
    (name,) = form.kernels
    measured = replace(form, times=PlacementTimes(0.003, 0.003, {name: PartTimes(0.001, "openvino", 0.0015)}))
    report = CompiledModule(form.inputs, form.outputs, module.settings, fixed=measured).explain()
    (row,) = (line for line in report.splitlines() if line.startswith("cpu "))
    assert row.split() == ["cpu", "2", "2", "2.000", "openvino", "3.000", "2", "cumsum"]


def test_a_part_that_no_operator_ends_in_says_what_it_is(placed: CompiledModule) -> None:
    """The cumulative sum along the middle axis is several kernels, the last of which makes its result."""
    node = helper.make_node("CumSum", ["x", "axis"], ["y"])
    proto = model([node], [("x", FLOAT, [2, 3, 4])], [("y", FLOAT, [2, 3, 4])], {"axis": np.array(1)})
    module = fusion.compile(proto, threads=1, cache=False)
    *steps, last = module.placement.parts
    assert steps, "it is one kernel now: take another operator"
    assert last.what == "1 cumsum"
    assert {(part.operators, part.what) for part in steps} == {((), part.call) for part in steps}
    (form,) = module.specializations
    times = PlacementTimes(0.003, 0.003, {part.call: PartTimes(0.001) for part in steps})
    measured = replace(form, times=times)
    report = CompiledModule(form.inputs, form.outputs, module.settings, fixed=measured).explain()
    rows = [line.split() for line in report.splitlines() if line.startswith("cpu ")]
    assert [(row[2], row[-1]) for row in rows] == [("0", part.call) for part in steps]

    nothing = replace(placed.placement.parts[0], backend="cpu", call="transpose1", operators=(), names=())
    both = replace(placed.placement, parts=(*placed.placement.parts, nothing, nothing))
    assert "cpu: 0 operators in 2 calls: 2 transpose1, " in str(both)


def test_an_operator_of_several_calls_ends_in_the_last() -> None:
    calls = tuple(GraphCall(name, name, "kernel", "", (), 0, 0) for name in ("sums", "rest"))
    operators = (SourceOperator("y", "nn.softmax", "", (), (0, 1), "inferred"),)
    first, last = placement_in(ModelGraph(operators, calls), PlacementTimes()).parts
    assert (first.operators, first.what) == ((), "a step of nn.softmax")
    assert (last.names, last.steps_of, last.what) == (("y",), (), "1 nn.softmax")


def test_one_of_a_thing_is_told_in_the_singular(placed: CompiledModule) -> None:
    assert str(placed.placement).endswith("operators in 1 call")
    assert "onnxruntime runs 3 of 3 operators in 1 region:" in placed.explain()


def test_one_line_says_where_it_runs(
    placed: CompiledModule, tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    onnx.save(mlp(), tmp_path / "mlp.onnx")
    with caplog.at_level(logging.INFO, "fusion.backends"):
        main(["compile", str(tmp_path / "mlp.onnx"), "--backends", "onnxruntime,cpu", "--no-cache"])
    assert f"placement: {placed.placement}" in caplog.text
    assert f"placement: {placed.placement}" in capsys.readouterr().out


def test_a_model_that_is_wholly_a_fallback() -> None:
    node = helper.make_node("StringNormalizer", ["x"], ["y"])
    module = fusion.compile(model([node], [("x", 8, [2])], [("y", 8, [2])]), cache=False)
    (part,) = module.placement.parts
    assert (part.backend, part.operators) == ("onnxruntime", ("StringNormalizer",))


def test_a_part_that_is_a_fallback_has_the_operators_of_its_nodes() -> None:
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("Det", ["r"], ["d"]),
        helper.make_node("Det", ["d"], ["e"]),
        helper.make_node("Acosh", ["e"], ["y"]),
    ]
    module = fusion.compile(model(nodes, [("x", FLOAT, [2, 2, 3, 3])], [("y", FLOAT, [])]), cache=False)
    by_library = [part for part in module.placement.parts if part.backend == "onnxruntime"]
    assert [part.operators for part in by_library] == [("Det", "Det")]
    assert {node.subgraph for node in module.specializations[-1].fallbacks} == {by_library[0].call}


def test_a_product_of_bytes_is_where_its_kernel_is() -> None:
    """What follows it may run elsewhere; without "cpu" no product is made ours."""
    network = quantized.static(networks.small_images(16))
    beside, without = (
        fusion.compile(network, backends=backends, threads=1, cache=False)
        for backends in (["onnxruntime", "cpu"], ["onnxruntime"])
    )
    ours = [part for part in beside.placement.parts if part.backend == "cpu"]
    for product, op in (("conv2d", "nn.conv2d"), ("matmul", "matmul")):
        assert sum(product in part.call for part in ours) == sum(part.operators.count(op) for part in ours)
    assert without.placement.backends == ("onnxruntime",)
    inputs = {spec.name: np.random.default_rng(0).normal(size=spec.shape).astype("f4") for spec in beside.inputs}
    for one, other in zip(beside.run(inputs).values(), without.run(inputs).values(), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5)


def test_equal_parts_of_two_branches_have_the_operators_of_one() -> None:
    def branch(name: str, op: str) -> onnx.GraphProto:
        nodes = [helper.make_node("Det", ["x"], ["d"]), helper.make_node(op, ["d"], ["y"])]
        return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info("y", FLOAT, [2])])

    chosen = helper.make_node("If", ["c"], ["z"], then_branch=branch("a", "Acosh"), else_branch=branch("b", "Exp"))
    given = [("c", TensorProto.BOOL, []), ("x", FLOAT, [2, 3, 3])]
    module = fusion.compile(model([chosen], given, [("z", FLOAT, [2])]), cache=False)
    by_library = [part for part in module.placement.parts if part.backend == "onnxruntime"]
    assert [part.operators for part in by_library] == [("Det",), ("Det",)]


def test_without_a_form_there_are_no_parts() -> None:
    module = CompiledModule((), (), Settings("{}", "x86_64", 1, ()))
    assert module.placement.parts == ()
    assert str(module.placement) == "no form is made yet"


def test_transfers_are_counted_once_for_a_backend() -> None:
    """x -> a on cpu -> b and c on a library, of which c is read by cpu."""

    def call(name: str, kind: str, op: str, reads: tuple[int, ...]) -> GraphCall:
        return GraphCall(name, op, kind, "", tuple(Read(each, 4) for each in reads), 0, 0)

    calls = (
        call("x", "input", "input", ()),
        call("a", "kernel", "k", (0,)),
        call("b", "fallback", "lib:1", (1,)),
        call("c", "fallback", "lib:2", (1, 2)),
        call("d", "kernel", "k", (3, 1)),
    )
    operators = tuple(
        SourceOperator(name, "nn.relu", "", (), (place,), "mapped") for place, name in enumerate("abcd", 1)
    )
    placement = placement_in(ModelGraph(operators, calls), PlacementTimes())
    assert placement.transfers == 2
    assert [part.backend for part in placement.parts] == ["cpu", "lib", "lib", "cpu"]
    assert str(placement) == "cpu: 2 operators in 2 calls, lib: 2 operators in 2 calls, 2 transfers"
