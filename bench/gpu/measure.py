"""All engines on one subject, each in its own process, rounds interleaved, so that clocks that change do so for all."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bench import gate
from bench.gpu.engines import OURS, listed
from bench.gpu.result import BASELINE, DeviceResult, SubjectResult
from bench.gpu.subjects import Subject, make
from bench.remote import EngineError, RemoteProcess


@dataclass(frozen=True)
class DeviceComparisonPlan:
    """How a comparison is run.

    Attributes:
        engines: Names; ours and the one that errors are measured by are among them.
        rounds: How often each is timed.
        round_s: Seconds per round and engine.
        load_s: Deadline of compiling and searching; `call_s` that of a round or of a call.
    """

    engines: tuple[str, ...]
    rounds: int = 9
    round_s: float = 0.25
    load_s: float = 3600.0
    call_s: float = 60.0


def compare(subject: Subject, plan: DeviceComparisonPlan) -> SubjectResult:
    """Return what the engines of `plan` do; one that fails has its reason in the result."""
    found = SubjectResult(subject, {name: DeviceResult() for name in dict.fromkeys((OURS, *plan.engines, BASELINE))})
    with contextlib.ExitStack() as stack:
        running: dict[str, RemoteProcess] = {}
        for name, result in found.engines.items():
            with _noting(result):
                process = stack.enter_context(RemoteProcess("bench.gpu.worker", name))
                result.load_s = process.ask(plan.load_s, "load", subject)
                running[name] = process
        _check(found, running, plan)
        for _ in range(plan.rounds):
            for name, process in running.items():
                result = found.engines[name]
                if not result.failure:
                    with _noting(result):
                        result.rounds_s.append(process.ask(plan.call_s, "measure", plan.round_s))
    return found


def copy_gbs(plan: DeviceComparisonPlan) -> float | None:
    """Return what a copy moves on the device, in 1e9 bytes a second; None where it fails."""
    with contextlib.suppress(EngineError), RemoteProcess("bench.gpu.worker", BASELINE) as process:
        rounds = [process.ask(plan.call_s, "copy_gbs", plan.round_s) for _ in range(plan.rounds)]
        return float(np.median(rounds))
    return None


def _check(found: SubjectResult, running: dict[str, RemoteProcess], plan: DeviceComparisonPlan) -> None:
    """Put the outputs of all engines through the float64 gate."""
    outputs: dict[str, Sequence[np.ndarray]] = {}
    for name, process in running.items():
        with _noting(found.engines[name]):
            outputs[name] = process.ask(plan.call_s, "outputs")
    if BASELINE not in outputs:
        return
    names, reference = in_float64(found.subject)
    for name, made in outputs.items():
        verdict = gate.Verdict(baseline=BASELINE)
        named = [dict(zip(names, each, strict=True)) for each in (made, outputs[BASELINE], reference)]
        gate.judge(verdict, *named)
        found.engines[name].verdict = verdict


def in_float64(subject: Subject) -> tuple[Sequence[str], list[np.ndarray]]:
    """Return the names of the outputs, and what they are in float64, of weights and inputs of the subject's dtype."""
    import torch

    made = make(subject)
    given = [torch.from_numpy(each) for each in made.draw(0)]
    wide = [each.double() if each.is_floating_point() else each for each in given]
    with torch.inference_mode():
        outputs = made.module.double()(*wide)
    return made.outputs, [each.numpy() for each in listed(outputs)]


@contextlib.contextmanager
def _noting(result: DeviceResult) -> Iterator[None]:
    """Write an engine's failure into its result instead of ending the comparison."""
    try:
        yield
    except EngineError as error:
        result.failure = str(error)
        result.rounds_s.clear()
