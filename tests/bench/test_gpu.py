"""The bench of CUDA modules: its arithmetic on made-up results, what it runs, and what it says without a device."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest

from bench.gate import Verdict
from bench.gpu import __main__ as program
from bench.gpu import device, measure, report, sanitize
from bench.gpu.engines import EAGER, ENGINES, MAX_AUTOTUNE, OURS
from bench.gpu.measure import DeviceComparisonPlan, compare
from bench.gpu.result import DeviceReport, DeviceResult, SubjectResult, geometric_mean
from bench.gpu.subjects import KERNELS, MEMORY, Subject, make
from bench.remote import EngineError
from fusion.errors import NotInstalledError, OptionError, TargetError

RIGHT, WRONG = Verdict(), Verdict(passed=False, reasons=["y: error 1"])


def result(name: str, seconds: dict[str, Sequence[float]], batch: int = 1, **more: Any) -> SubjectResult:
    """Return what engines did, in so many seconds each round."""
    engines = {engine: DeviceResult(list(rounds), verdict=RIGHT, **more) for engine, rounds in seconds.items()}
    return SubjectResult(Subject(name, batch, "fp32"), engines)


def test_ratios_are_of_rounds() -> None:
    found = result("product", {OURS: [1.0, 2.0, 4.0], EAGER: [2.0, 2.0, 4.0], MAX_AUTOTUNE: [3.0, 3.0, 3.0]})
    assert (found.ratio(EAGER), found.ratio(MAX_AUTOTUNE)) == (1.0, 1.5)
    assert found.least_ratio() == 1.0
    assert found.gbs() is None
    assert found.tflops() == pytest.approx(2 * 512 * 1024 * 1024 / 2e12)
    assert result("product", {OURS: [1.0], EAGER: []}).least_ratio() is None


def test_memory_is_a_share_of_what_a_copy_moves() -> None:
    x = 512 * 1024 * 4
    assert KERNELS["residual_norm"].moved_bytes(32, 4) == 3 * 32 * x + 2 * 1024 * 4
    moved = 2 * x + 1024 * 4
    found = DeviceReport("a device", 1000.0, [result("bias_silu", {OURS: [moved / 900e9]})])
    (goal,) = found.goals()
    assert goal.value == pytest.approx(0.9)
    assert goal.is_reached
    assert not DeviceReport("a device", None, found.subjects).goals()[0].is_reached


def test_what_is_to_be_reached() -> None:
    products = [
        result("product", {OURS: [1.0], EAGER: [0.8]}),
        result("attention", {OURS: [1.0], EAGER: [0.69]}),
    ]
    models = [
        result("resnet50", {OURS: [1.0], MAX_AUTOTUNE: [2.0]}),
        result("vit_s", {OURS: [1.0], MAX_AUTOTUNE: [0.5]}),
        result("vit_s", {OURS: [1.0], MAX_AUTOTUNE: [0.1]}, batch=32),
    ]
    for each, (ours, theirs) in zip(models, [(1.0, 8.0), (2.0, 4.0), (1.0, 4.0)], strict=True):
        each.engines[OURS].load_s, each.engines[MAX_AUTOTUNE].load_s = ours, theirs
    found = DeviceReport("a device", 1000.0, [*products, *models])
    assert [(goal.value, goal.is_reached) for goal in found.goals()] == [(0.69, False), (1.0, True), (0.5, False)]
    assert not found.passed
    assert [str(each.subject) for each in found.worst()] == [
        "vit_s, batch 32, fp32", "vit_s, batch 1, fp32", "attention, batch 1, fp32",
    ]  # fmt: skip


def test_a_mean_leaves_nothing_out() -> None:
    there = result("resnet50", {OURS: [1.0], MAX_AUTOTUNE: [4.0]})
    assert geometric_mean([there, result("vit_s", {OURS: [1.0], MAX_AUTOTUNE: [1.0]})], MAX_AUTOTUNE) == 2.0
    assert geometric_mean([there, result("vit_s", {OURS: [1.0]})], MAX_AUTOTUNE) is None


def test_reports_have_all_that_was_found() -> None:
    failed = result("attention", {OURS: [2e-6], EAGER: []})
    failed.engines[EAGER].failure, failed.engines[OURS].verdict = "it died", WRONG
    models = result("resnet50", {OURS: [1e-3], EAGER: [2e-3], MAX_AUTOTUNE: [3e-3]}, load_s=1.0)
    found = DeviceReport("a device", 2000.0, [result("softmax", {OURS: [4e-5], EAGER: [6e-5]}), failed, models])
    text = report.text(found)
    (row,) = (line for line in text.splitlines() if line.startswith("| softmax"))
    assert [cell.strip() for cell in row.split("|")[1:-1]] == [
        "softmax", "1", "fp32", "40.0", "60.0", "1.50", "", "42%", "", "0.0e+00", "yes",
    ]  # fmt: skip
    assert "- attention, batch 1, fp32: no numbers of torch-eager: it died" in text
    assert "attention, batch 1, fp32: fusion is not right: y: error 1" in text
    assert "Geometric mean of the ratios to torch-max-autotune: 3.00" in text
    data = json.loads(report.as_json(found))
    assert data["subjects"][2]["ratios"] == {EAGER: 2.0, MAX_AUTOTUNE: 3.0}
    assert [goal["is_reached"] for goal in data["goals"]] == [False, False, True, False]


@dataclass
class Stand:
    """In the place of an engine's process: it notes what it is asked."""

    module: str
    engine: str
    asked: list[str] = field(default_factory=list)

    def __enter__(self) -> Stand:
        return self

    def __exit__(self, *error: object) -> None:
        pass

    def ask(self, deadline_s: float, method: str, *arguments: Any) -> Any:
        self.asked.append(f"{self.engine} {method}")
        if method == "outputs":
            x = np.concatenate(make(Subject("softmax", 1, "fp32")).draw(0)).astype(np.float64)
            powers = np.exp(x - x.max(-1, keepdims=True))
            right = (powers / powers.sum(-1, keepdims=True)).reshape(16, 512, 512)
            return [right * 1.5 if self.engine == OURS else right]
        if self.engine == MAX_AUTOTUNE:
            raise EngineError("it died")
        return 1.0


def test_rounds_are_interleaved_and_outputs_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []
    monkeypatch.setattr(measure, "RemoteProcess", lambda module, engine: Stand(module, engine, asked))
    found = compare(Subject("softmax", 1, "fp32"), DeviceComparisonPlan((EAGER, MAX_AUTOTUNE), rounds=2))
    assert [each for each in asked if each.endswith("measure")] == [f"{OURS} measure", f"{EAGER} measure"] * 2
    assert found.engines[MAX_AUTOTUNE].failure == "it died"
    assert not found.passed
    verdict = found.engines[EAGER].verdict
    assert verdict is not None
    assert verdict.error < 1e-6


def test_without_a_device_it_says_so(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    said = {"cuda": "no driver"}

    class Described:
        def describe(self) -> dict[str, str]:
            return said

    monkeypatch.setattr(device, "device_runtime", lambda kind: Described())
    monkeypatch.setattr("sys.argv", ["bench.gpu"])
    assert program.main() == sanitize.main() == 2
    assert "[F501] the bench of CUDA modules measures on a device, and none is here" in capsys.readouterr().err
    with pytest.raises(TargetError, match="none is here"):
        device.require_device()
    said["cuda:0"] = "a device"
    with pytest.raises(NotInstalledError, match="torch on the device") as error:
        device.require_device()
    assert "is a build for CPUs" in error.value.why


def test_what_is_run() -> None:
    options = program._parser().parse_args(["softmax", "vit_s", "--precisions", "fp16"])
    assert [str(each) for each in program.subjects(options)] == [
        "softmax, batch 1, fp16", "softmax, batch 32, fp16", "vit_s, batch 1, fp16", "vit_s, batch 32, fp16",
    ]  # fmt: skip
    assert options.engines == [name for name in ENGINES if name != OURS]
    shapes = [spec.shape for spec in make(Subject("wide_product", 32, "fp16")).inputs]
    assert shapes == [(32, 512, 1024), (1024, 4096), (4096,)]
    assert KERNELS["product"].flops * 4 == KERNELS["wide_product"].flops
    assert {each.kind for each in KERNELS.values() if not each.flops} == {MEMORY}
    with pytest.raises(OptionError, match="no torch module 'silero'"):
        make(Subject("silero", 1, "fp32"))
    command = sanitize.command_of("compute-sanitizer", "racecheck")
    assert command[:5] == ["compute-sanitizer", "--tool", "racecheck", "--error-exitcode", "9"]
