"""`fusion bench --shapes`: what a wrong file of shapes ends with, and one run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx
import pytest

from fusion.cli.shape_stream import read_stream
from tests.cli.commands import run, run_json
from tests.module import small_models
from tests.module.small_models import FLOAT

RIGHT = [{"x": [2, 8]}, {"x": [1, 8], "z": [1, 8]}]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return relu(x + z), both with eight columns and open rows of one name."""
    nodes = [onnx.helper.make_node("Add", ["x", "z"], ["s"]), onnx.helper.make_node("Relu", ["s"], ["y"])]
    values = [("x", FLOAT, ["rows", 8]), ("z", FLOAT, ["rows", 8])]
    path = tmp_path_factory.mktemp("models") / "sum.onnx"
    onnx.save(small_models.model(nodes, values, [("y", FLOAT, ["rows", 8])]), path)
    return path


@pytest.fixture
def no_engine_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise AssertionError("an engine was started")

    monkeypatch.setattr("bench.remote.Worker.__init__", fail)


def bench(capsys: pytest.CaptureFixture[str], model: Path, text: str, *more: str) -> tuple[int, str]:
    path = model.parent / "stream.json"
    path.write_text(text)
    code, _, err = run(capsys, "bench", model, "--shapes", path, *more)
    return code, err


@pytest.mark.usefixtures("no_engine_starts")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[{", ["stream.json", "not JSON", "write a list of calls"]),
        ("\xff", ["not JSON"]),
        ("[" * 100_000, ["not JSON"]),
        ('{"x": [2, 8]}', ["not a list of calls", "it holds a dict"]),
        ("[]", ["the list is empty"]),
        ("[[2, 8]]", ["stream.json, call 1", "no object from input name to extents"]),
    ],
)
def test_a_file_that_is_no_stream(
    text: str, words: list[str], model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = bench(capsys, model, text)
    assert code == 2
    assert "F502" in err
    assert all(word in err for word in words), err


@pytest.mark.usefixtures("no_engine_starts")
@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        ({"x": [-1, 8]}, "F502", "no list of whole numbers, 0 or more"),
        ({"x": [1.0, 8]}, "F502", "it is [1.0, 8]"),
        ({"x": [True, 8]}, "F502", "it is [True, 8]"),
        ({"x": ["rows", 8]}, "F502", "it is ['rows', 8]"),
        ({"x": 8}, "F502", "it is 8"),
        ({"y": [1, 8]}, "F204", "no input 'y'"),
        ({"x": [1, 9]}, "F204", "contradicts the model"),
        ({"x": [1, 8, 1]}, "F204", "contradicts the model"),
        ({}, "F204", "'x'"),
        ({"x": [10**12, 8]}, "F", "does not fit the memory"),
    ],
)
def test_a_call_that_does_not_fit_the_model_is_named(
    call: dict[str, Any], code: str, words: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ended, err = bench(capsys, model, json.dumps([*RIGHT, call]))
    assert ended == 2
    assert f"[{code}" in err
    assert words in err
    assert "stream.json, call 3" in err
    assert "Traceback" not in err


@pytest.mark.usefixtures("no_engine_starts")
@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--shape", "x=1,8"], "--shape has no use with --shapes"),
        (["--rounds", "3"], "--rounds has no use with --shapes"),
        (["--peers", "onnxruntime,torch"], "'torch' runs no stream of shapes"),
        (["--threads", "0"], "--threads 0 is not"),
        (["--bounds", "rows=2-8"], "stream.json, call 2"),
        (["--bounds", "columns=2-8"], "no open dimension has the name 'columns'"),
    ],
)
def test_options_that_do_not_go_with_a_stream(
    more: list[str], words: str, model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, err = bench(capsys, model, json.dumps(RIGHT), *more)
    assert code == 2
    assert words in err


def test_no_such_file_is_told_before_the_model_is_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for path, reason in ((tmp_path / "none.json", "No such file"), (tmp_path, "Is a directory")):
        code, _, err = run(capsys, "bench", "none.onnx", "--shapes", path)
        assert code == 2
        assert "cannot open the stream of shapes" in err
        assert reason in err


def test_a_stream_is_benched(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (model.parent / "right.json").write_text(json.dumps(RIGHT))
    assert read_stream(str(model.parent / "right.json"))[0] == {"x": (2, 8)}
    code, data = run_json(
        capsys, "bench", model, "--shapes", model.parent / "right.json", "--peers", "onnxruntime", "--threads", 1,
        "--bounds", "rows=1-2",
    )  # fmt: skip
    assert code == 0
    assert data["passed"]
    assert data["calls"][0] == {"x": [2, 8], "z": [2, 8]}, "rows of one name have one size"
    assert set(data["engines"]) == {"fusion", "onnxruntime"}
    assert data["forms"] == 1, "one for all sizes"
    assert len(data["against"]["forms"]) == 2
