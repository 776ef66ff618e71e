"""Kernels with two anchors against their parts."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tvm import relax, tirx

from backends.backend import KernelCompiler
from backends.cpu.kernels.priority import TEMPLATES
from backends.cpu.schedule import schedule
from fusion import context
from fusion.module.kernel_library import KernelLibrary
from tests.backends.cpu.kernels.anchored import normal, run
from tests.backends.cpu.kernels.examples import Example, convolution, examples_of
from tests.passes.modules import Build
from tests.tuning.answers import Answers
from tuning import chains
from tuning.chains import MeasureChains, RecallChains
from tuning.database import Database
from tuning.forms_bench import FormsBench
from tuning.known import Knowledge
from tuning.measuring_session import MeasuringSession
from tuning.parts import only_moves, split_kernel, weights_of


def products(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    scores = b.emit(relax.op.matmul(x, b.emit(relax.op.permute_dims(x, [0, 2, 1]))))
    return relax.op.matmul(b.emit(relax.op.nn.softmax(b.emit(relax.op.tanh(scores)), -1)), x)


def convolutions(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
    return convolution(100, 1, 100, 3)(b, b.emit(convolution(1, 12, 100, 1)(b, x)))


CASES: dict[str, tuple[Build, tuple[int, ...], int, int]] = {
    "products": (products, (2, 50, 12), 3, 0),
    "convolutions": (convolutions, (1, 13, 11, 12), 2, 2),
}


def chain(build: Build, shape: tuple[int, ...]) -> tirx.PrimFunc:
    """Return the kernel that the judge is asked about."""
    asked: list[tirx.PrimFunc] = []

    def judge(kernel: tirx.PrimFunc) -> str:
        asked.append(kernel)
        return "no"

    run(build, [normal(shape, 0)], "llvm", 1, judge=judge)
    return asked[0]


def chain_of_a_family() -> tirx.PrimFunc:
    """Return a kernel of the first family of the list that has several operators in one kernel."""
    example = next(examples_of(template)[0] for template in TEMPLATES if template.estimate)
    assert isinstance(example, Example)
    return chain(example.build, example.shape)


@pytest.mark.parametrize("name", CASES)
def test_parts_have_one_anchor_each(name: str) -> None:
    build, shape, many, weights = CASES[name]
    kernel = chain(build, shape)
    parts = split_kernel(kernel)
    assert sum(not only_moves(part) for part in parts) == many
    assert len(weights_of(kernel)) == weights
    ctx = context.resolve("llvm")
    assert not any(schedule(part, ctx.compiler.machine, 2).note for part in parts), "templates take them"
    outer = {param for part in parts for param in part.params}
    assert outer.issuperset(kernel.params)


def judge_of(compiler: KernelCompiler, session: Any, folder: Path, estimate: str = "") -> MeasureChains:
    """Return what measures chains that are estimated so, with a database in `folder`."""
    return MeasureChains(
        knowledge=Knowledge.of(Database(folder / "records"), compiler),
        bench=FormsBench(compiler, KernelLibrary(compiler), session, folder),
        seconds=60.0,
        by_estimate=lambda kernel: estimate,
    )


@pytest.mark.parametrize(("estimate", "candidate", "answer"), [
    ("", 0, True), ("", 1, False), ("slower by estimate", 0, False), ("slower by estimate", 1, True),
])  # fmt: skip
def test_the_faster_candidate_is_taken(
    estimate: str, candidate: int, answer: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(chains, "_CLOSE", 100.0)
    ctx, bench = context.resolve("llvm"), Answers(candidate)
    judge = judge_of(ctx.compiler, bench, tmp_path, estimate)
    kernel = chain_of_a_family()
    assert (judge(kernel) == "") is answer
    assert (judge(kernel) == "") is answer
    assert len(bench.asked) == 1, "equal kernels are measured once"
    assert len(judge.notes) == 1
    again = judge_of(ctx.compiler, bench, tmp_path, estimate)
    assert again(kernel) == judge(kernel)
    assert again.notes == judge.notes
    assert RecallChains(again.knowledge, again.by_estimate)(kernel) == judge(kernel)
    assert len(bench.asked) == 1, "what is known is not measured again"


def test_estimates_far_apart_are_not_questioned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_CLOSE", 1.0)
    ctx, bench = context.resolve("llvm"), Answers(1)
    judge = judge_of(ctx.compiler, bench, tmp_path)
    assert judge(chain_of_a_family()) == ""
    assert not bench.asked


def test_a_chain_is_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chains, "_CLOSE", 100.0)
    ctx = context.resolve("llvm")
    with MeasuringSession(tmp_path) as bench:
        judge = judge_of(ctx.compiler, bench, tmp_path)
        judge(chain_of_a_family())
    assert "us together" in judge.notes[0]
    assert np.isfinite(float(judge.notes[0].split(" us together")[0].rsplit(" ", 1)[1]))
