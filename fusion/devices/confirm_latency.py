"""Lets the plan of single requests run beside the fastest device alone, before it is taken."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from fusion.devices.choose_stages import StagePlan
from fusion.devices.device_program import run_once
from fusion.devices.requests import Flow
from fusion.report.profile import rounds_of

_SECONDS = 2.0
"""For calls of both, by turns."""


def confirm_latency(
    plan: StagePlan, flow: Flow, alone: StagePlan, flow_alone: Flow, arrays: Sequence[np.ndarray]
) -> tuple[StagePlan, Flow]:
    """Return `plan` with what runs it where it is measured to be faster, otherwise `alone`: noise in the times of
    kernels makes devices that are alike look unlike, and a plan look faster for it.

    Raises:
        ExecutionError: The model does not take these arrays.
    """
    rounds = rounds_of(lambda: [_timed(flow, arrays), _timed(flow_alone, arrays)], _SECONDS)
    taken, by_one = (statistics.median(times) for times in zip(*rounds, strict=True))
    told = f"{taken * 1e3:.3f} ms where the fastest device alone takes {by_one * 1e3:.3f}, measured by turns"
    if taken < by_one:
        return replace(plan, why=f"{plan.why}; it takes {told}"), flow
    return replace(alone, why=f"the fastest device alone: the plan {plan.why} takes {told}"), flow_alone


def _timed(flow: Flow, arrays: Sequence[np.ndarray]) -> float:
    started = time.perf_counter()
    run_once(flow, arrays)
    return time.perf_counter() - started
