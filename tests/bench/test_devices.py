"""`bench.devices`: its networks are those of the papers, and its report says what was measured."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from bench.devices import large, report
from bench.devices.__main__ import SERVER, main
from bench.devices.grain import WorkGrain, grain_of
from bench.devices.instances import first_difference
from bench.devices.measure import PlanResult, measure
from bench.devices.networks import NETWORKS, operators_of
from placement.devices import OTHER, Device, Link, Topology
from placement.devices_file import read_devices
from placement.problem import PlacementProblem
from placement.tasks import TaskEdge, TaskGraph, TaskNode


# Multiply-adds and parameters, in millions: of the papers, and of torchvision's and transformers' models.
@pytest.mark.parametrize(
    ("name", "products", "parameters"),
    [("vgg16", 15_470, 138.4), ("resnet50", 4_090, 25.5), ("googlenet", 1_580, 6.6), ("bert_base", 11_200, 85.0)],
)
def test_networks_have_the_work_of_their_papers(name: str, products: float, parameters: float) -> None:
    operators = operators_of(name)
    kinds = ("convolution", "matmul")
    flops = sum(each.work.flops for each in operators if each.work.kind in kinds)
    assert flops / 2e6 == pytest.approx(products, rel=0.05)
    assert sum(each.weights for each in operators) / 4e6 == pytest.approx(parameters, rel=0.06)


@pytest.mark.parametrize("name", NETWORKS)
def test_operators_read_earlier_ones(name: str) -> None:
    for index, operator in enumerate(operators_of(name, 4)):
        assert all(read < index for read in operator.reads)


def test_exact_plans_of_a_few_instances() -> None:
    pytest.importorskip("highspy")
    assert first_difference(5) == ""


def test_measured_and_reported() -> None:
    pytest.importorskip("highspy")
    results = list(measure("vgg16", 1, read_devices(SERVER), 5.0))
    for result in results:
        assert result.bound * (1 - 1e-6) <= result.plan <= result.placed <= result.baseline
        assert result.exact is not None
        assert result.placed <= result.exact * 1.05
    text = report.text(results)
    assert "## Latency" in text
    assert "## Throughput" in text
    assert all(result.is_solved for result in results)
    header, row = (
        next(line for line in text.splitlines() if line.startswith(f"| {name} ")) for name in ("network", "vgg16")
    )
    told = dict(zip(header.split("|"), row.split("|"), strict=True))
    assert told[" solved "].strip() == "yes"
    gains = [result.found.get("greedy", result.placed) / result.plan for result in results]
    alone = next(line for line in text.split("## One simple method")[1].splitlines() if line.startswith("| greedy "))
    assert alone.split("|")[-2].strip() == f"{math.sqrt(gains[0] * gains[1]):.3f}"


def test_grain_says_which_copies_are_dear() -> None:
    """Of three results one is small, and the last is not read."""
    tasks = (TaskNode("a", (1.0, 2.0)), TaskNode("b", (3.0, 1.0)), TaskNode("c", (1.0, 1.0)), TaskNode("d", (1.0, 9.0)))
    edges = (TaskEdge(0, 1, 0.5), TaskEdge(1, 2, 4.0), TaskEdge(2, 3, 2.0))
    devices = tuple(Device(f"device {k}", {OTHER: 1.0}, 1.0, 1e9) for k in range(2))
    grain = grain_of(PlacementProblem(TaskGraph(tasks, edges), Topology.uniform(devices, Link(0.0, 1e-9))))
    assert grain.kernel == pytest.approx(1.0)
    assert grain.copy == pytest.approx(2.0)
    assert grain.dear == pytest.approx(2 / 3)
    assert grain.path == pytest.approx(6.0)


def test_one_objective() -> None:
    (result,) = measure("vgg16", 1, read_devices(SERVER), 0.0, ["throughput"])
    assert result.objective == "throughput"
    assert not result.is_solved
    assert "HiGHS" not in report.line(result)


def test_large_graphs(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("sys.argv", ["large", "--operators", "40", "--devices", "3"])
    large.main()
    told = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in told] == ["latency", "throughput"]
    assert all("above the bound" in line for line in told)


def test_wrong_files_are_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["devices", "--devices", str(tmp_path / "none.toml")])
    assert main() == 2
    assert "none.toml" in capsys.readouterr().err


def test_means_are_geometric() -> None:
    found = {"fastest device": 4.0, "greedy": 4.0, "HEFT": 8.0, "random": 9.0}
    results = [
        PlanResult(
            "net", 1, 3, "latency", found, placed=2 * plan, placed_bound=1.0, plan=plan, method="HEFT", bound=1.0,
            planning=1.0, more=1.0, exact=None, proven=0.0, solving=0.0, grain=WorkGrain(1e-6, 2e-6, 3e-6, 4e-6, 0.25),
        )
        for plan in (1.0, 4.0)
    ]
    lines = report.text(results).splitlines()
    (mean,) = (line.split("|") for line in lines if "geometric mean " in line)
    assert _cells(lines, "greedy ") == ["greedy", "1.000", "1.000"]
    assert _cells(lines, "with divided images") == ["with divided images or mixed placements", "2.000", "2.000"]
    assert _cells(lines, "the bound ") == ["the bound", "4.000", "4.000"]
    assert _cells(lines, "net ", last=True)[-5:] == ["1.0", "2.0", "3.0", "4.0", "25%"]
    assert [cell.strip() for cell in mean if cell.strip()] == ["geometric mean", "1.00", "2.00", "2.00", "4.00"]


def _cells(lines: list[str], name: str, *, last: bool = False) -> list[str]:
    found = [line for line in lines if line.startswith(f"| {name}")]
    return [cell.strip() for cell in found[-1 if last else 0].split("|") if cell.strip()]
