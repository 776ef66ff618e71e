"""The demo's pipeline reads the demo's page; the program says what it found and what it cannot read."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper
from PIL import Image

from bench import zoo
from bench.demo.__main__ import main
from bench.demo.image import LINES, UPSIDE_DOWN, sample
from bench.demo.reader import NETWORKS, Network, Reader
from tests.kept_code import quick_kernels


def onnxruntime_network(path: Path) -> Network:
    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda data: np.asarray(session.run(None, {"x": data})[0])


def test_the_page_is_read_word_for_word() -> None:
    reader = Reader(onnxruntime_network)
    lines = reader.read(sample())
    assert [line.text for line in lines] == [*LINES, UPSIDE_DOWN]
    assert min(line.score for line in lines) > 0.9
    assert reader.inputs["recognition"].shape[3] % 64 == 0


def test_a_page_without_text_has_no_lines() -> None:
    assert Reader(onnxruntime_network).read(np.full((200, 300, 3), 255, np.uint8)) == []


def demo(*arguments: object) -> list[str]:
    return [sys.executable, "-m", "bench.demo", *map(str, arguments)]


ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}


@pytest.fixture
def blank(tmp_path: Path) -> Path:
    path = tmp_path / "blank.png"
    Image.new("RGB", (64, 64), "white").save(path)
    return path


def test_an_image_without_text_is_no_failure(
    blank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    with quick_kernels():  # half the time, which is that of compiling a network of the zoo
        assert "no linker" not in shown_of(blank, monkeypatch, capsys)


def shown_of(blank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> str:
    """Return what the program prints about an image without text, after a look at what it always has."""
    monkeypatch.setattr(sys, "argv", ["bench.demo", str(blank)])
    monkeypatch.setattr("bench.demo.__main__._ROUNDS", 1)
    code = main()
    output = capsys.readouterr().out
    assert code == 0, output
    assert "No text was found" in output
    assert "Networks that ran, compiled by fusion: detection." in output
    assert "ONNX Runtime finds none either." in output
    assert "| yes   |" in output
    return output


def test_without_a_linker_a_network_is_compiled_where_it_is_timed(
    blank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The network is one that finds nothing anywhere, as that of the demo is compiled in 20 s each time."""
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["grey"], axes=[1]),
        helper.make_node("Sigmoid", ["grey"], ["likely"]),
        helper.make_node("Mul", ["likely", "least"], ["y"]),
    ]
    x, y = (
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", channels, "h", "w"])
        for name, channels in (("x", 3), ("y", 1))
    )
    least = numpy_helper.from_array(np.float32(0.1), "least")
    graph = helper.make_graph(nodes, "nothing", [x], [y], [least])
    path = blank.with_name("nothing.onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8), path)
    made = zoo.make

    def make(name: str) -> zoo.ZooModel:
        model = made(name)
        return replace(model, path=path) if name == NETWORKS["detection"] else model

    monkeypatch.setattr(zoo, "make", make)
    monkeypatch.setenv("CC", "no-such-compiler")
    assert "there is no linker to save with" in shown_of(blank, monkeypatch, capsys)


@pytest.mark.parametrize("content", [None, b"", b"no image\n", b"\x89PNG\r\n\x1a\n cut short"])
def test_what_is_no_image_is_named_in_one_line(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "image.png"
    if content is not None:
        path.write_bytes(content)
    monkeypatch.setattr(sys, "argv", ["bench.demo", str(path)])
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"cannot read {path}: ")


def test_a_truncated_image_is_named_in_one_line(
    blank: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    test_what_is_no_image_is_named_in_one_line(blank.read_bytes()[:60], blank.parent, monkeypatch, capsys)


def test_help_ends_with_0() -> None:
    done = subprocess.run(demo("--help"), env=ENVIRONMENT, capture_output=True, text=True, check=True)
    assert "usage: python -m bench.demo" in done.stdout


def test_a_reader_that_goes_away_ends_the_program_quietly() -> None:
    code = "import sys; from bench import command; command.run(lambda: print('x' * 100_000, flush=True) or 0)"
    with subprocess.Popen(
        [sys.executable, "-c", code], env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as program:
        assert program.stdout is not None
        assert program.stderr is not None
        program.stdout.close()
        assert program.stderr.read() == b""
    assert program.returncode == 141
