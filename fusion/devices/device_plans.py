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
        problem: Tasks, and what they take while the other devices are idle, as in a call.
        together: The same while all compute, as in a stream.
        once, many: The plans of single requests and of streams.
        kernels: How many kernels each task has.
        names: Of what each task makes, as in the model's graph.
        costs: Where the times are from, and what they leave out: a sentence each.
    """

    devices: tuple[DeviceTarget, ...]
    problem: PlacementProblem
    together: PlacementProblem
    once: StagePlan
    many: StagePlan
    kernels: tuple[int, ...]
    names: tuple[tuple[str, ...], ...]
    costs: tuple[str, ...]
