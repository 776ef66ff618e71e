"""What the stages of a divided model take, beside what plans expect."""

from __future__ import annotations

import itertools
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import numpy as np

from fusion.devices.device_program import DeviceProgram
from fusion.devices.requests import Flow
from fusion.report.known_limits import known_limits
from fusion.report.profile import Profile, median_of
from fusion.report.table import format_table

_LEAST_REQUESTS = 8
"""Of a stream, besides those that it takes ahead."""


@dataclass(frozen=True)
class StageTime:
    """A stage, run while all other devices are idle.

    Attributes:
        of: "a call" or "a stream".
        device: That runs it.
        kernels: In it.
        expected_s: Seconds by the plan; of a stream, with the other devices busy.
        seconds: Measured in the thread of the device; of a server, with its copies.
    """

    of: str
    device: str
    kernels: int
    expected_s: float
    seconds: float


@dataclass(frozen=True)
class DevicesProfile(Profile):
    """The stages of a divided model, in place of kernels.

    Attributes:
        stages: Of calls, and those of streams where these have others.
        expected_s: Of a call, by the plan.
        period_s: Seconds from one result of a stream to the next, measured.
        expected_period_s: The same by the plan.
    """

    stages: tuple[StageTime, ...] = ()
    expected_s: float = 0.0
    period_s: float = 0.0
    expected_period_s: float = 0.0

    def as_dict(self) -> dict[str, Any]:
        """Return everything as plain data, for JSON."""
        own = {name: getattr(self, name) for name in ("expected_s", "period_s", "expected_period_s")}
        return {**super().as_dict(), **own, "stages": list(map(asdict, self.stages))}

    def __str__(self) -> str:
        rows = [
            (each.of, each.device, str(each.kernels), _ms(each.expected_s), _ms(each.seconds)) for each in self.stages
        ]
        rows.append(("a call", "all", "", _ms(self.expected_s), _ms(self.total_s)))
        rows.append(("a stream, each request", "all", "", _ms(self.expected_period_s), _ms(self.period_s)))
        table = format_table(("of", "device", "kernels", "ms expected", "ms measured"), rows)
        return f"at {self.sizes}\n{table}" if self.sizes else table


def _ms(seconds: float) -> str:
    return f"{seconds * 1e3:.3f}"


def profile_devices(program: DeviceProgram, arrays: Sequence[np.ndarray], sizes: str, seconds: float) -> DevicesProfile:
    """Return what stages, calls and a stream take on `arrays`: all of them are repeated for about `seconds`, by turns
    of what is compared, while nothing else computes.

    Raises:
        FusionError: A stage failed.
    """
    plans = program.plans
    flows = [("a call", program.once, plans.once.stages)]
    planned = iter(plans.many.stages)
    for flow in program.many:
        stages = tuple(itertools.islice(planned, len(flow.stages)))
        flows += [("a stream", flow, stages)] if flow is not program.once else []
    made = list[StageTime]()
    for of, flow, stages in flows:
        counts = [sum(plans.kernels[task] for task in stage.tasks) for stage in stages]
        times = _stage_times(flow, arrays, seconds)
        for stage, kernels, taken in zip(stages, counts, times, strict=True):
            made.append(StageTime(of, plans.devices[stage.device].name, kernels, stage.seconds, taken))
    total_s = median_of(lambda: program.run(arrays), seconds)
    requests = program.most_under_way + _LEAST_REQUESTS
    return DevicesProfile(
        (),
        total_s,
        known_limits(max(device.threads for device in plans.devices)),
        sizes,
        stages=tuple(made),
        expected_s=plans.once.seconds,
        period_s=_period(program, arrays, max(requests, int(seconds / max(plans.many.seconds, 1e-6)))),
        expected_period_s=plans.many.seconds,
    )


def _stage_times(flow: Flow, arrays: Sequence[np.ndarray], seconds: float) -> list[float]:
    """Return the seconds of each stage in the thread of its device."""
    values = {**flow.constants, **dict(zip(flow.inputs, arrays, strict=True))}
    found = list[float]()
    for stage in flow.stages:
        read = [values[place] for place in stage.reads]
        values.update(zip(stage.writes, stage.thread.run(partial(stage.run, read)), strict=True))
        found.append(stage.thread.run(partial(median_of, partial(stage.run, read), seconds / len(flow.stages))))
    return found


def _period(program: DeviceProgram, arrays: Sequence[np.ndarray], requests: int) -> float:
    """Return the seconds of a request behind those with which the pipeline fills."""
    ends = list[float]()
    for _ in program.stream(itertools.repeat(arrays, requests)):
        ends.append(time.perf_counter())
    first = min(program.most_under_way, requests - _LEAST_REQUESTS)
    return (ends[-1] - ends[first]) / (len(ends) - 1 - first)
