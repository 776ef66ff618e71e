"""Divided models return what whole ones do, wherever they are cut."""

from __future__ import annotations

import copy
import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NoReturn

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from fusion.declined import Declined
from fusion.device_module import DeviceModule
from fusion.devices import confirm_latency, make_program, measured_costs
from fusion.errors import InputError, OptionError, TargetError
from tests.devices.forced import TARGETS, alternating, divided, needs_two_cpus
from tests.forked import answer_of_child
from tests.module import small_models

pytestmark = needs_two_cpus


def arrays(count: int, seed: int = 0) -> list[np.ndarray]:
    return [np.random.default_rng(seed + each).standard_normal((3, 8)).astype(np.float32) for each in range(count)]


def concatenated() -> onnx.ModelProto:
    """Branches that are joined, a weight and an input among the results, and one result twice in all but name."""
    wide = np.random.default_rng(1).standard_normal((8, 2048)).astype(np.float32)
    nodes = [
        helper.make_node("MatMul", ["x", "wide"], ["a"]),
        helper.make_node("Softmax", ["a"], ["b"], axis=0),
        helper.make_node("MatMul", ["x", "wide"], ["c0"]),
        helper.make_node("Sigmoid", ["c0"], ["c"]),
        helper.make_node("Concat", ["b", "c", "a"], ["y"], axis=1),
        helper.make_node("Reshape", ["y", "flat"], ["z"]),
        helper.make_node("Identity", ["x"], ["same"]),
        helper.make_node("Identity", ["wide"], ["weight"]),
        helper.make_node("Softmax", ["y"], ["s"], axis=0),
    ]
    real = small_models.FLOAT
    outputs = [("y", real, [3, 6144]), ("z", real, [18432]), ("same", real, [3, 8]), ("weight", real, [8, 2048])]
    return small_models.model(
        nodes, [("x", real, [3, 8])], [*outputs, ("s", real, [3, 6144])], {"wide": wide, "flat": np.array([-1])}
    )


@pytest.mark.parametrize(
    "model", [small_models.mlp, small_models.softmax_of_columns, small_models.two_layers, concatenated]
)
def test_results_are_those_of_the_whole_model(model: object) -> None:
    proto = model()  # type: ignore[operator]
    whole, module = fusion.compile(proto, threads=1), divided(proto)
    inputs = arrays(9)
    expected = [whole(array) for array in inputs]
    assert len(module._program.many[0].stages) > (proto is not None and model is not small_models.mlp)
    for answers in ([module(array) for array in inputs], list(module.stream(inputs))):
        for answer, right in zip(answers, expected, strict=True):
            for ours, theirs in zip(answer, right, strict=True):
                np.testing.assert_array_equal(ours, theirs)
                assert ours.flags.writeable


@pytest.fixture(scope="module")
def module() -> DeviceModule:
    return divided(small_models.softmax_of_columns())


def test_several_callers_and_streams_at_a_time(module: DeviceModule) -> None:
    def work(seed: int) -> bool:
        inputs = arrays(12, seed * 100)
        called = [module(array)[0] for array in inputs]
        streamed = [result for (result,) in module.stream(inputs)]
        mapped = [result for (result,) in module.map(inputs, 2)]
        np.testing.assert_array_equal(streamed, called)
        np.testing.assert_array_equal(mapped, called)
        return len(called) == len(inputs)

    with ThreadPoolExecutor(6) as pool:
        assert all(pool.map(work, range(6)))


def test_items_are_what_run_or_a_call_takes(module: DeviceModule) -> None:
    (array,) = arrays(1)
    expected = module.run({"x": array})["y"]
    by_name, by_position, only = module.stream([{"x": array}, (array,), array])
    for found in (by_name["y"], by_position[0], only[0]):
        np.testing.assert_array_equal(found, expected)
    assert list(module.stream([])) == []
    for wrong in ({"x": array}, 3):
        with pytest.raises(InputError):
            module.stream(wrong)


def test_planned_module_says_why(module: DeviceModule) -> None:
    planned = fusion.compile(small_models.mlp(), target=TARGETS)
    assert isinstance(planned, DeviceModule)
    np.testing.assert_array_equal(planned(arrays(1)[0])[0], fusion.compile(small_models.mlp())(arrays(1)[0])[0])
    text = planned.explain()
    for said in (*TARGETS, "one request:", "a stream of requests:", "no plan is below", "begins here because"):
        assert said in text
    assert "forced" in module.explain()
    assert TARGETS[1] in repr(module)
    for refused in (lambda: module.save("file.fusion"), lambda: copy.deepcopy(module)):
        with pytest.raises(OptionError):
            refused()


def test_reports_name_the_devices(module: DeviceModule, tmp_path: Path) -> None:
    assert {part.device for part in module.placement.parts} == set(TARGETS)
    assert all(f"cpu on {target}: " in str(module.placement) for target in TARGETS)
    profile = module.profile(seconds=0.02)
    assert {each.device for each in profile.stages if each.of == "a call"} == set(TARGETS)
    assert min(profile.total_s, profile.period_s, *(each.seconds for each in profile.stages)) > 0
    assert "a stream, each request" in str(profile)
    json.dumps(profile.as_dict())
    module.explain_html(tmp_path / "page.html", title="<script>")
    page = (tmp_path / "page.html").read_text()
    told = (*TARGETS, "a stream of requests", "begins here because", "forced")
    assert all(said in page for said in told)
    assert "<script>" not in page


def test_a_stream_runs_as_calls_do_where_no_plan_for_it_fits() -> None:
    def declines(*_: object, **__: object) -> NoReturn:
        raise Declined("the memories are too small for runs of the graph")

    module, inputs = divided(small_models.softmax_of_columns(), declines), arrays(4)
    for (streamed,), array in zip(module.stream(inputs), inputs, strict=True):
        np.testing.assert_array_equal(streamed, module(array)[0])
    assert "too small for runs of the graph" in module.explain("throughput")


def test_a_model_without_kernels_is_told() -> None:
    """It was an internal error."""
    real = small_models.FLOAT
    same = small_models.model([helper.make_node("Identity", ["x"], ["y"])], [("x", real, [3])], [("y", real, [3])])
    with pytest.raises(TargetError, match="nothing to divide"):
        fusion.compile(same, target=TARGETS)


def test_measured_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measured_costs, "_RUN_S", 0.05)
    monkeypatch.setattr(measured_costs, "_KERNELS_S", 0.05)
    measured = fusion.compile(
        small_models.softmax_of_columns(), target=TARGETS, effort="balanced", database=False, cache=False
    )
    assert "measured on each device" in measured.explain()
    np.testing.assert_allclose(
        measured(arrays(1)[0])[0], fusion.compile(small_models.softmax_of_columns())(arrays(1)[0])[0], rtol=1e-5
    )


def test_a_plan_of_several_devices_that_is_slower_when_measured_is_not_taken() -> None:
    """What `forced` says to take 1 ms waits for the other thread at each kernel."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_program, "plan_latency", alternating)
        patch.setattr(confirm_latency, "_timed", lambda flow, _: float(len(flow.stages)))
        patch.setattr(measured_costs, "_RUN_S", 0.05)
        patch.setattr(measured_costs, "_KERNELS_S", 0.05)
        measured = fusion.compile(
            small_models.softmax_of_columns(), target=TARGETS, effort="balanced", database=False, cache=False
        )
    assert isinstance(measured, DeviceModule)
    assert len(measured._program.once.stages) == 1
    assert "the plan forced takes" in measured.explain("latency")


def test_a_device_of_several_cpus() -> None:
    cpus = [target.rpartition("-")[2] for target in TARGETS]
    if int(cpus[1]) != int(cpus[0]) + 1:
        pytest.skip("the CPUs of this process do not follow each other")
    module = fusion.compile(small_models.mlp(4000), target=[f"llvm:{cpus[0]}-{cpus[1]}"])
    x = np.random.default_rng(0).standard_normal((4000, 8)).astype(np.float32)
    expected = fusion.compile(small_models.mlp(4000), threads=2)(x)[0]
    np.testing.assert_array_equal(module(x)[0], expected)
    np.testing.assert_array_equal(next(module.stream([x]))[0], expected)


@pytest.mark.filterwarnings("ignore:This process")  # of its threads
def test_a_forked_process_runs_it(module: DeviceModule) -> None:
    inputs = arrays(6)
    expected = [module(array)[0] for array in inputs]  # threads of the parent wait for more

    def runs() -> bool:
        streamed = [result for (result,) in module.stream(inputs)]
        return all(map(np.array_equal, streamed, expected)) and np.array_equal(module(inputs[0])[0], expected[0])

    assert answer_of_child(runs)
