"""What families share that choose a point by estimates: the waves of its blocks on a device, and the least time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from backends.cuda.devices import CudaDevice
from fusion.declined import Declined

P = TypeVar("P")


@dataclass(frozen=True, order=True)
class PointTime:
    """What a point is estimated to take; of those that memory makes alike the less is computed, the better.

    Attributes:
        seconds: In all.
        waves_s: Of that, what its blocks take, which the least time of memory may hide.
        multiplied: Products of whole tiles, with those that are outside of the matrices.
    """

    seconds: float
    waves_s: float
    multiplied: int = 0


def fastest(plans: Iterable[P], estimate: Callable[[P], PointTime | None]) -> P:
    """Return the plan whose estimate is lowest, the first of several; None is that of one that does not fit the device.

    Raises:
        Declined: There is none, or none fits.
    """
    estimated = ((estimate(plan), plan) for plan in plans)
    fitting = [(time, plan) for time, plan in estimated if time is not None]
    if not fitting:
        raise Declined("no sizes of tiles suit it")
    return min(fitting, key=lambda each: each[0])[1]


def waves_s(blocks: int, at_once: int, device: CudaDevice, wave_s: Callable[[int], float]) -> float:
    """Return the seconds of a grid whose SMs hold `at_once` blocks each: whole waves, and one of what is left.

    Args:
        wave_s: Returns how long an SM takes for so many blocks at once, of at least one.
    """
    waves, rest = divmod(blocks, at_once * device.sms)
    last = wave_s(-(-rest // device.sms)) if rest else 0.0
    return waves * wave_s(at_once) + last
