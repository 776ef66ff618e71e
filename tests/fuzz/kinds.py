"""The kinds of cases: how one is made from a seed, and how one is judged."""

from __future__ import annotations

import traceback
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import lru_cache

import fusion
from tests.fuzz import data, files, graphs, guard, large
from tests.fuzz.case import Case, Outcome, describe
from tests.fuzz.verdicts import judge, judge_alone, tensors
from tests.fuzz.worker import Job

MAKERS: dict[str, Callable[[int], Case]] = {
    "data": data.make_case,
    "files": files.make_case,
    "graphs": graphs.make_case,
    "large": large.make_case,
}
_OPTIMISED = 8
"""One of so many seeds has its kernels optimised as for users where that is left out."""
_kept = ExitStack()


def answer(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Return the outcome of `job`."""
    if job.guard:
        _guard(job.guard)
    stage("make")
    case = job.case or MAKERS[job.kind](job.seed)
    if job.mode == "make":
        return Outcome(job.kind, job.seed, "made", where=_described(case), note=case.note, case=case)
    if job.mode == "values":
        every = replace(case, inputs=tensors(case.proto(), case.inputs))
        return Outcome(job.kind, job.seed, "made", case=every)
    try:
        return _judge(case, job.mode == "alone", stage)
    except MemoryError:
        return Outcome(job.kind, job.seed, "memory", traceback.format_exc(limit=-3), _described(case), case.note, case)


def answer_quickly(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Return the outcome of `job`. As in most tests, LLVM optimises few kernels, and equal ones have their code made
    once."""
    quick_kernels = _sharing_code()
    with nullcontext() if job.seed % _OPTIMISED == 0 else quick_kernels():
        return answer(job, stage)


@lru_cache
def _sharing_code() -> Callable[[], AbstractContextManager[None]]:
    """Have code shared until the process ends; return what leaves kernels unoptimised."""
    fusion.compile  # noqa: B018 -- before TVM, which alone imports PyTorch
    from tests.kept_code import quick_kernels, sharing_code

    _kept.enter_context(sharing_code())
    return quick_kernels


def _judge(case: Case, alone: bool, stage: Callable[[str], None]) -> Outcome:
    if case.kind == "files":
        return files.judge_file(case, stage, alone)
    return judge_alone(case, stage) if alone else judge(case, stage)


@lru_cache
def _guard(side: str) -> None:
    guard.install(side)


def _described(case: Case) -> str:
    return f"{case.form} file" if case.kind == "files" else describe(case.proto(), case.inputs)
