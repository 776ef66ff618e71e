"""`fusion plan`: kernels of a model on the devices of a file."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from bench.devices.__main__ import SERVER
from fusion.system.cpus import cpu_numbers
from placement.optional import has_optional
from tests.cli.commands import run, run_json


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a convolution, a product of its result, and some columns of that, whose numbers are checked in a run."""
    draw = np.random.default_rng(0)
    kernel, matrix = draw.standard_normal((8, 3, 3, 3)), draw.standard_normal((14, 10))
    graph = helper.make_graph(
        [
            helper.make_node("Conv", ["x", "kernel"], ["y"]),
            helper.make_node("MatMul", ["y", "matrix"], ["z"]),
            helper.make_node("Gather", ["z", "at"], ["columns"], axis=3),
        ],
        "net",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 16, 16]),
            helper.make_tensor_value_info("at", TensorProto.INT64, [4]),
        ],
        [helper.make_tensor_value_info("columns", TensorProto.FLOAT, [1, 8, 14, 4])],
        [
            numpy_helper.from_array(kernel.astype(np.float32), "kernel"),
            numpy_helper.from_array(matrix.astype(np.float32), "matrix"),
        ],
    )
    path = tmp_path_factory.mktemp("plan") / "net.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path


@pytest.mark.parametrize("objective", ["latency", "throughput"])
def test_a_plan(capsys: pytest.CaptureFixture[str], model: Path, objective: str) -> None:
    code, data = run_json(capsys, "plan", model, "--devices", SERVER, "--objective", objective)
    assert code == 0
    assert data["objective"] == objective
    assert 0 < data["bound_us"] <= data["plan_us"] * (1 + 1e-9)
    best = min(data["methods_us"].values())  # a stream may mix placements, a call has one of these
    assert data["plan_us"] <= best if objective == "throughput" else data["plan_us"] == best
    assert sum(device["tasks"] for device in data["devices"]) == len(data["placement"])
    assert 0 < max(device["busy"] for device in data["devices"]) <= 1 + 1e-9
    assert data["devices"][2]["source"] == "NVIDIA A10, data sheet of March 2021"


@pytest.mark.parametrize(("objective", "requests"), [("latency", 1), ("throughput", 3)])
def test_a_plan_is_drawn(
    capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path, objective: str, requests: int
) -> None:
    page = tmp_path / "plan.html"
    code, told, _ = run(
        capsys, "plan", model, "--devices", SERVER, "--objective", objective, "--html", page
    )  # fmt: skip
    assert code == 0
    assert "plan.html" in told
    text = page.read_text()
    assert all("NVIDIA A10, data sheet" in each and "convolution 62500" in each for each in (told, text))
    kernels = len(re.findall(r'<rect class="kernel', text))
    assert kernels == requests * len(re.findall(r'<rect class="kernel"', text)) > 0
    assert "http" not in text.replace("http-equiv", "")


def test_kinds_of_work_have_their_speeds(capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path) -> None:
    """Each kernel goes to the device that is good at its kind."""
    devices = "".join(
        f'[[device]]\nname = "{name}"\ngflops = {{ other = 0.001, {kind} = 100 }}\ngbs = 1000\nmemory_gb = 1\n'
        for name, kind in (("convolves", "convolution"), ("multiplies", "matmul"))
    )
    link = '[[link]]\nbetween = ["convolves", "multiplies"]\nlatency_us = 1\ngbs = 100\n'
    (tmp_path / "devices.toml").write_text(devices + link)
    _, data = run_json(capsys, "plan", model, "--devices", tmp_path / "devices.toml")
    assert set(data["placement"].values()) == {"convolves", "multiplies"}
    assert {device for task, device in data["placement"].items() if "conv2d" in task} == {"convolves"}
    assert data["copies"] == len(data["cuts"]) == sum(link["copies"] for link in data["links"]) >= 1
    for cut in data["cuts"]:
        assert min(cut["us_if_made_there"], cut["us_if_read_here"]) >= data["plan_us"] * (1 - 1e-9)
    _, told, _ = run(capsys, "plan", model, "--devices", tmp_path / "devices.toml", "--html", tmp_path / "plan.html")
    assert all("because the plan takes, otherwise" in text for text in (told, (tmp_path / "plan.html").read_text()))
    assert "convolves → multiplies" in told


@pytest.mark.skipif(not has_optional(), reason="HiGHS is not installed")
def test_the_best_plan_is_asked_for(capsys: pytest.CaptureFixture[str], model: Path) -> None:
    asked = ("plan", model, "--devices", SERVER, "--objective", "throughput")
    _, data = run_json(capsys, *asked, "--exact", "10s")
    assert data["methods_us"]["exact"] == min(data["methods_us"].values()) or data["gap"] < 1e-6
    code, _, said = run(capsys, *asked, "--exact", "10x")
    assert code == 2
    assert "exact='10x' is no time" in said
    code, _, said = run(capsys, "plan", model, "--devices", f"llvm:{cpu_numbers()[0]}", "--exact", "10s")
    assert code == 2
    assert "--exact has no use" in said


def test_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path) -> None:
    code, _, said = run(capsys, "plan", model, "--devices", tmp_path / "none.toml")
    assert code == 2
    assert "none.toml" in said


def test_a_plan_for_sets_of_cpus(capsys: pytest.CaptureFixture[str], model: Path, tmp_path: Path) -> None:
    cpu = cpu_numbers()[0]
    code, data = run_json(capsys, "plan", model, "--devices", f"llvm:{cpu}-{cpu}")
    assert code == 0
    assert {stage["device"] for plan in data.values() for stage in plan["stages"]} == {f"llvm:{cpu}-{cpu}"}
    assert set(data) == {"latency", "throughput"}
    one = ("plan", model, "--devices", f"llvm:{cpu}-{cpu}", "--objective", "throughput")
    _, data = run_json(capsys, *one)
    assert set(data) == {"throughput"}
    page = tmp_path / "plan.html"
    _, told, _ = run(capsys, *one, "--html", page)
    assert "a stream of requests" in told
    assert "one request:" not in told
    text = page.read_text()
    assert len(re.findall(r'<rect class="kernel', text)) == 3 * len(data["throughput"]["stages"][0]["tasks"]) > 0
    assert f"llvm:{cpu}-{cpu}" in text
    assert "the model begins here" in text
    code, _, said = run(capsys, "plan", model, "--devices", SERVER, "--devices", f"llvm:{cpu}")
    assert code == 2
    assert "is a file of devices" in said
    code, _, said = run(capsys, "plan", model, "--devices", f"llvm:{cpu}", "--devices", f"llvm:{cpu}")
    assert code == 2
    assert "two devices" in said
