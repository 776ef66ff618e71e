"""How a model runs on several devices, for reports."""

from __future__ import annotations

from dataclasses import dataclass

from fusion.devices.choose_stages import StagePlan
from fusion.devices.targets import DeviceTarget
from placement.problem import PlacementProblem


@dataclass(frozen=True, eq=False)
class DevicePlans:
    """The plans that a model runs by.

    Attributes:
        devices: What the stages run on.
        problem: Tasks, and what they take.
        once, many: The plans of single requests and of streams.
        kernels: How many kernels each task has.
        costs: Where the times are from, and what they leave out: a sentence each.
    """

    devices: tuple[DeviceTarget, ...]
    problem: PlacementProblem
    once: StagePlan
    many: StagePlan
    kernels: tuple[int, ...]
    costs: tuple[str, ...]
