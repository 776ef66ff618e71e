"""The whole model on each of several devices, to which the requests of a stream are dealt."""

from __future__ import annotations

import math
from dataclasses import dataclass

from fusion.declined import Declined
from placement.problem import PlacementProblem

_LEAST_GAIN = 0.05
"""Part by which a device must add to what the faster ones answer: a slower one delays those behind its requests."""


@dataclass(frozen=True)
class Replicas:
    """A plan of a stream that sends nothing from device to device.

    On devices that are alike no plan is below it: its period is that of the work divided at will, `area_bound`.

    Attributes:
        devices: Those that have the model, the fastest first.
        seconds: What a request takes on each.
        period: Between two requests, if each device takes as many as it can.
    """

    devices: tuple[int, ...]
    seconds: tuple[float, ...]
    period: float


def find_replicas(problem: PlacementProblem) -> Replicas:
    """Return the replicas on the devices that can hold and run the whole model, as many as are worth it.

    Raises:
        Declined: There are fewer than two.
    """
    size = sum(problem.memory)
    alone = {k: sum(seconds[k] for seconds in problem.seconds) for k in problem.devices if size <= problem.room[k]}
    devices, rate = list[int](), 0.0
    for device in sorted(alone, key=lambda k: alone[k]):
        more = 1.0 / alone[device] if alone[device] else math.inf
        if more < rate * _LEAST_GAIN or not more:
            break
        devices.append(device)
        rate += more
    if len(devices) < 2:
        raise Declined("fewer than two devices can hold and run all of the model, and are worth it")
    return Replicas(tuple(devices), tuple(alone[k] for k in devices), 1.0 / rate)
