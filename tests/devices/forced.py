"""Models divided among two devices by plans that no planner would choose."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import onnx
import pytest

import fusion
from fusion.device_module import DeviceModule
from fusion.devices import make_program
from fusion.devices.choose_stages import Pipeline, PlannedStage, StagePlan
from fusion.system.cpus import cpu_numbers
from placement.problem import PlacementProblem

TARGETS = [f"llvm:{cpu}-{cpu}" for cpu in cpu_numbers()[:2]]
needs_two_cpus = pytest.mark.skipif(len(TARGETS) < 2, reason="this process may use one CPU")


def alternating(problem: PlacementProblem, **_: object) -> StagePlan:
    """Each task a stage of its own, on the one device and the other in turn."""
    stages = [PlannedStage(task % 2, (task,), 1e-3, "forced") for task in problem.tasks]
    return _forced((Pipeline(tuple(stages), 1e-3),))


def replicated(problem: PlacementProblem, **_: object) -> StagePlan:
    """All tasks on the one device and on the other, of which the second is thought to take three times as long."""
    tasks, times = tuple(problem.tasks), (1e-3, 3e-3)
    return _forced(
        tuple(Pipeline((PlannedStage(k, tasks, each, "forced"),), each) for k, each in enumerate(times))
    )


def _forced(pipelines: tuple[Pipeline, ...]) -> StagePlan:
    return StagePlan("throughput", pipelines, seconds=1e-3, bound=1e-3, alone=1e-3, why="forced")


def divided(
    model: onnx.ModelProto, stream: Callable[..., StagePlan] = alternating, targets: Sequence[str] = tuple(TARGETS)
) -> DeviceModule:
    """Return `model` with every kernel in a stage of its own, or with that plan of streams."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(make_program, "plan_latency", alternating)
        patch.setattr(make_program, "plan_throughput", stream)
        module = fusion.compile(model, target=targets)
    assert isinstance(module, DeviceModule)
    return module
