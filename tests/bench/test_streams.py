"""Streams of shapes: how they are drawn, run, checked and reported."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper

from bench import inputs, zoo
from bench.gate import Verdict
from bench.peers import OURS
from bench.peers.engine import Arrays, Job
from bench.remote import EngineError
from bench.result import EngineResult
from bench.streams import against_static, measure, report, statics
from bench.streams.__main__ import main
from bench.streams.against_static import StaticPlan
from bench.streams.choose import by_size, spread
from bench.streams.draw import TEMPLATES, draw_stream
from bench.streams.measure import StreamPlan, run_stream
from bench.streams.result import AgainstStatic, Costs, Shapes, StaticForm, StreamResult, describe, stalls
from bench.streams.sample import Sample, take_samples
from fusion.errors import OptionError
from tests.bench.engine_here import EngineHere
from tests.module import small_models
from tests.module.small_models import FLOAT

PEER = "onnxruntime"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return softmax(x @ w + z) with open rows, which both inputs have."""
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["h"]),
        helper.make_node("Add", ["h", "z"], ["s"]),
        helper.make_node("Softmax", ["s"], ["y"], axis=-1),
    ]
    proto = small_models.model(
        nodes,
        [("x", FLOAT, ["rows", 8]), ("z", FLOAT, ["rows", 32])],
        [("y", FLOAT, ["rows", 32])],
        {"w": small_models.weights()[0]},
    )
    path = tmp_path_factory.mktemp("streams") / "two.onnx"
    onnx.save(proto, path)
    return path


def rows(count: int, other: int | None = None) -> Shapes:
    return {"x": (count, 8), "z": (count if other is None else other, 32)}


def draw(shapes: Shapes, seed: int) -> Arrays:
    return inputs.draw([inputs.InputSpec(name, shape, "float32") for name, shape in shapes.items()], seed)


def test_a_stream_runs_twice_in_every_engine_and_is_right(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command line's test, of `fusion bench --shapes`, has the static forms in processes of their own."""
    monkeypatch.setattr(against_static, "Worker", EngineHere)
    seeds: list[int] = []

    def noted(shapes: Shapes, seed: int) -> Arrays:
        seeds.append(seed)
        return draw(shapes, seed)

    calls = [rows(3), rows(1), rows(3), rows(200)]
    plan = StreamPlan(threads=1, peers=(PEER,), checks=1, statics=1, passes=2)
    result = run_stream(Job(model, {}, threads=1), plan, calls, noted, "two")
    assert result.passed, report.text(result)
    assert seeds[:16] == [0, 1, 2, 3] * 2 + [4, 5, 6, 7] * 2, "all engines get the same, each call something new"
    for engine in (OURS, PEER):
        assert [len(times) for times in result.passes[engine]] == [4, 4]
        assert (result.engines[engine].load_s or 0) > 0
        assert (result.engines[engine].peak_rss or 0) > (result.engines[engine].base_rss or 0) > 0
    assert result.forms == 1, "one for all sizes"
    assert result.errors[OURS] < 1e-6
    assert result.compiling == [0], "the call that makes it is counted"
    assert result.checked == [1]
    against = result.against
    assert against is not None
    assert (against.largest, [form.call for form in against.forms]) == (3, [0])
    assert min(against.forms[0].open_s, against.forms[0].static_s) > 0
    for costs in (against.opened, against.static):
        assert min(costs.compile_s, costs.compiling_bytes, costs.running_bytes, costs.file_bytes or 0) > 0
    verdict = result.engines[OURS].verdict
    assert verdict is not None
    assert verdict.reference == "float64"
    assert json.loads(json.dumps(result.as_dict()))["engines"][OURS]["passes_s"][1] == result.passes[OURS][1]


def test_a_call_that_onnxruntime_cannot_run_is_named(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(measure, "OURS", PEER)  # one engine is enough
    with pytest.raises(EngineError, match=r"call 2 of the stream \(x 3x8, z 2x32\)"):
        run_stream(Job(model, {}, 1), StreamPlan(1, ()), [rows(3), rows(3, 2)], draw, "two")


def test_static_forms_are_compiled_once_and_their_calls_take_turns_with_those_of_the_open_one(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for each in (statics, against_static):
        monkeypatch.setattr(each, "Worker", EngineHere)
    calls = [rows(3), rows(1), rows(3), rows(200)]
    plan = StaticPlan(Job(model, {}, threads=1), calls, lambda place: draw(calls[place], place), most=2, call_s=300.0)
    options = argparse.Namespace(folder=tmp_path, model="two", calls=4, seed=0, rounds=1)
    statics._compile(plan, options)
    files = sorted(tmp_path.glob("*/model.fusion"))
    assert [path.parent.name for path in files] == ["two.4.0.1", "two.4.0.3", "two.open"]
    files[0].unlink()
    written = [path.stat().st_mtime_ns for path in files[1:]]
    statics._time(plan, options)
    assert "two, 1 shapes: geometric mean" in capsys.readouterr().out
    (form,) = json.loads((tmp_path / "two.json").read_text())
    assert form["call"] == 3
    assert min(form["open_s"], form["static_s"]) > 0
    statics._compile(plan, options)
    assert files[0].exists()
    assert [path.stat().st_mtime_ns for path in files[1:]] == written
    statics._costs(plan, options)
    assert "compile_s: " in capsys.readouterr().out


def found(ours: list[list[float]], peer: list[list[float]]) -> StreamResult:
    engines = {name: EngineResult(load_s=1.0, peak_rss=3 << 20, verdict=Verdict()) for name in (OURS, PEER)}
    result = StreamResult("two", [rows(1), rows(2), rows(1)], 2, engines)
    result.passes.update({OURS: ours, PEER: peer})
    return result


def test_a_shape_that_is_compiled_each_time_it_comes_stalls_each_time() -> None:
    result = found([[5.0, 5.0, 0.01], [0.01, 5.0, 0.01]], [[0.02, 0.02, 0.02], [0.02, 0.02, 0.02]])
    assert result.usual_s() == [0.01, 0.02, 0.01]
    assert [stalls(times, result.usual_s()) for times in result.passes[OURS]] == [2, 1]
    assert [stalls(times, result.usual_s()) for times in result.passes[PEER]] == [0, 0]


def test_the_report_has_passes_calls_stalls_and_static_forms() -> None:
    result = found([[5.0, 5.0, 0.01], [0.01, 5.0, 0.01]], [[0.02, 0.02, 0.02], [0.02, 0.02, 0.02]])
    result.forms, result.errors, result.checked = 2, {OURS: 1e-6}, [0]
    result.compiling = [0, 4]
    costs = Costs(3.0, 30 << 20, 13 << 20, 11 << 20), Costs(2.0, 20 << 20, 10 << 20, 10 << 20)
    result.against = AgainstStatic(1, *costs, [StaticForm(0, 0.01, 0.01), StaticForm(1, 0.09, 0.01)])
    text = report.text(result)
    assert text.startswith("two, 3 calls of 2 shapes, 2 threads")
    cells = [[cell.strip() for cell in line.split("|")[2:-1]] for line in text.splitlines() if "| fusion" in line]
    assert cells[0] == ["1.00", "10.01", "5.02", "11.01", "2, 1", "3", "2", "1.0e-06", "yes"]
    assert cells[1] == ["1", "5000.00", "5000.00", "5000.00"]
    assert cells[2] == ["2", "10.00", "5000.00", "5000.00"]
    line = next(line for line in text.splitlines() if line.startswith("| x 2x8, z 2x32"))
    assert [cell.strip() for cell in line.split("|")[2:-1]] == ["90.00", "10.00", "9.00"]
    assert "Geometric mean 3.000, 95th percentile 9.00, worst 9.00." in text
    assert "beside a static form for x 2x8, z 2x32" in text
    kinds = [line.split("|")[1:-1] for line in text.splitlines() if "MiB " in line and "engine" not in line]
    assert [kind[-1].strip() for kind in kinds] == ["1.50", "1.30", "1.10"]
    assert "compiled in call 5 (x 2x8, z 2x32), which took 5.00 s" in text
    assert "checked against float64 as a single shape is: x 1x8, z 1x32" in text
    assert result.passed


def test_a_wrong_output_anywhere_in_the_stream_is_told() -> None:
    result = found([[1.0] * 3] * 2, [[1.0] * 3] * 2)
    right = {"y": Sample((2, 3), np.ones(6))}
    for wrong in ({"y": Sample((3, 2), np.ones(6))}, {"y": Sample((2, 3), np.arange(6.0))}, {}):
        result.wrong.clear()
        measure._compare(result, {OURS: [right, right, wrong], PEER: [right] * 3})
        assert len(result.wrong[OURS]) == 1
        assert result.wrong[OURS][0].startswith("call 3 (x 1x8, z 1x32), y: error")
        assert not result.passed
    assert "| NO " in report.text(result)
    result.wrong[OURS] *= 5
    assert "not right in 2 more outputs" in report.text(result)


def test_an_engine_that_fails_has_no_numbers_but_a_reason() -> None:
    result = found([], [[1.0] * 3] * 2)
    result.engines[OURS].failure = "call 2 of the stream: it died"
    assert not result.passed
    text = report.text(result)
    assert "no numbers of fusion: call 2 of the stream: it died" in text
    assert json.loads(json.dumps(result.as_dict()))["engines"][OURS]["stalls"] == []


def test_a_sample_of_a_large_output_is_at_the_same_places_in_each_engine() -> None:
    value = np.random.default_rng(0).standard_normal((100, 500)).astype(np.float32)
    one, other = take_samples({"y": value})["y"], take_samples({"y": value.copy()})["y"]
    assert one.shape == (100, 500)
    assert one.elements.size < 5000
    assert np.array_equal(one.elements, other.elements)
    value[:] = 0
    assert one.elements.any(), "the engine writes over its own memory"
    assert np.array_equal(take_samples({"y": np.arange(3)})["y"].elements, np.arange(3))


@pytest.mark.parametrize("name", TEMPLATES)
def test_streams_follow_their_seed_and_stay_in_their_bounds(name: str) -> None:
    calls = draw_stream(name, 200, 0)
    assert calls == draw_stream(name, 200, 0)
    assert calls != draw_stream(name, 200, 1)
    for size, (low, high) in TEMPLATES[name].sizes.items():
        drawn = [
            extent
            for call in calls
            for input_name, shape in call.items()
            for extent, axis in zip(shape, TEMPLATES[name].shapes[input_name], strict=True)
            if axis == size
        ]
        assert low <= min(drawn) < math.sqrt(low * high) < max(drawn) <= high
        middle = np.median(drawn)
        assert math.sqrt(low * high) / 1.6 < middle < math.sqrt(low * high) * 1.6, "log-uniform"
    assert set(calls[0]) == set(zoo.registry.RECIPES[name].shapes)


@pytest.mark.parametrize(("name", "calls", "words"), [("resnet50", 3, "no streams"), ("ppocr_rec", 0, "0 calls")])
def test_what_no_stream_can_be_drawn_of(name: str, calls: int, words: str) -> None:
    with pytest.raises(OptionError, match=words):
        draw_stream(name, calls, 0)


def test_shapes_in_few_words() -> None:
    assert describe({"a": (2, 3), "b": (2, 3), "c": ()}) == "a/b 2x3, c scalar"


def test_calls_that_stand_for_all_are_spread_over_them() -> None:
    calls = [rows(count) for count in (7, 1, 5, 5, 3)]
    assert by_size(calls) == [1, 4, 2, 0]
    assert spread(range(200), 4) == [25, 75, 125, 175]
    assert spread([3, 1], 5) == [3, 1]


def test_large_calls_are_left_out_where_a_stream_bounds_them() -> None:
    drawn = draw_stream("bert_base_open", 200, 0)
    assert max(math.prod(call["input_ids"]) for call in drawn) <= TEMPLATES["bert_base_open"].most < 32 * 512


def test_a_model_that_was_run_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def run(name: str, *_: Any) -> StreamResult:
        made.append(name)
        return found([[1.0] * 3], [[1.0] * 3])

    monkeypatch.setattr("bench.streams.__main__._run", run)
    for options in ([], ["--resume"], ["--resume", "--seed=1"], []):
        monkeypatch.setattr("sys.argv", ["bench.streams", "bert_tiny_open", f"--out={tmp_path}", *options])
        assert main() == 0
    assert made == ["bert_tiny_open"] * 3


@pytest.mark.parametrize("option", ["--statics=-1", "--calls=0", "--passes=0"])
def test_numbers_that_are_none_are_refused(
    option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr("sys.argv", ["bench.streams", option, f"--out={tmp_path}"])
    assert main() == 2
    assert "cannot" in capsys.readouterr().err
