"""The kinds of cases: how one is made from a seed, and how one is judged."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache

import onnx

from tests.fuzz import data, graphs, guard
from tests.fuzz.case import Case, Outcome, describe
from tests.fuzz.verdicts import judge, judge_alone, tensors
from tests.fuzz.worker import Job

MAKERS: dict[str, Callable[[int], Case]] = {"data": data.make_case, "graphs": graphs.make_case}


def answer(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Return the outcome of `job`."""
    if job.guard:
        _guard(job.guard)
    stage("make")
    case = job.case or MAKERS[job.kind](job.seed)
    if job.mode == "make":
        return Outcome(job.kind, job.seed, "made", where=describe(case.proto(), case.inputs), note=case.note, case=case)
    if job.mode == "values":
        every = replace(case, inputs=tensors(case.proto(), case.inputs))
        return Outcome(job.kind, job.seed, "made", case=every)
    try:
        return judge_alone(case, stage) if job.mode == "alone" else judge(case, stage)
    except MemoryError:
        return Outcome(job.kind, job.seed, "memory", traceback.format_exc(limit=-3), _describe(case), case.note, case)


@lru_cache
def _guard(side: str) -> None:
    guard.install(side)


def _describe(case: Case) -> str:
    try:
        return describe(case.proto(), case.inputs)
    except (onnx.onnx_cpp2py_export.checker.ValidationError, ValueError, MemoryError):
        return ""
