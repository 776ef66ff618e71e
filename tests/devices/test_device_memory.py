"""Limits of memory: plans hold them, and what runs keeps to them."""

from __future__ import annotations

import itertools
import math
import random

import numpy as np
import onnx
import pytest
from onnx import helper

import fusion
from bench.devices.draw import draw_problem
from fusion.declined import Declined
from fusion.device_module import DeviceModule
from fusion.devices import device_memory
from fusion.devices.choose_stages import StagePlan, plan_latency, plan_throughput
from fusion.devices.device_memory import kept_always, kept_by_request
from fusion.errors import LimitError
from placement.problem import PlacementProblem
from tests.devices.forced import TARGETS, needs_two_cpus
from tests.module import small_models

X = np.ones((3, 64), np.float32)


def layers() -> onnx.ModelProto:
    """Six products with weights of 16 KiB each, with a kernel of its own behind each."""
    nodes, weights, rng = [], {}, np.random.default_rng(0)
    for at in range(6):
        weights[f"w{at}"] = rng.standard_normal((64, 64)).astype(np.float32) / 8
        nodes += [
            helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"m{at}"]),
            helper.make_node("Softmax", [f"m{at}"], [f"x{at + 1}"], axis=0),
        ]
    ends = [("x0", small_models.FLOAT, [3, 64])], [("x6", small_models.FLOAT, [3, 64])]
    return small_models.model(nodes, *ends, weights)


def _fits(problem: PlacementProblem, plan: StagePlan) -> bool:
    kept = [set[int]() for _ in problem.devices]
    for stage in plan.stages:
        kept[stage.device] |= set(stage.tasks)
    return all(
        sum(problem.memory[task] for task in tasks) <= room * (1 + 1e-6)
        for tasks, room in zip(kept, problem.room, strict=True)
    )


def test_plans_fit_the_memories_whatever_these_are() -> None:
    planned = 0
    for seed in range(60):
        problem = draw_problem(seed, largest=8)
        if math.inf in itertools.chain(*problem.seconds):
            continue  # sets of CPUs run everything
        for plan in (plan_latency, plan_throughput):
            try:
                found = plan(problem)
            except (Declined, LimitError):
                continue
            planned += 1
            assert _fits(problem, found), (seed, plan)
            assert sorted({task for stage in found.stages for task in stage.tasks}) == list(problem.tasks)
    assert planned > 60


@needs_two_cpus
def test_modules_keep_to_limits_whatever_these_are() -> None:
    model, draw, refused = layers(), random.Random(3), 0
    drawn = [[draw.randint(20, 110) for _ in TARGETS] for _ in range(3)]
    expected = fusion.compile(model)(X)[0]
    for sizes in (*drawn, [30, 40]):
        targets = [f"{target}?memory={size}K" for target, size in zip(TARGETS, sizes, strict=True)]
        try:
            module = fusion.compile(model, target=targets)
        except LimitError as error:
            told = str(error)
            assert sum(sizes) < 300, (sizes, told)  # all of it takes less than 140 KiB, and may be anywhere
            refused += "memor" in told
            continue
        assert isinstance(module, DeviceModule)
        program = module._program
        always = kept_always((program.once, *program.many))
        for flow in (program.once, *program.many):
            for thread, size in kept_by_request(flow).items():
                assert always[thread] + size <= thread.device.memory
        np.testing.assert_allclose(module(X)[0], expected, rtol=1e-5)
        for (result,) in module.stream([X] * 20):
            np.testing.assert_allclose(result, expected, rtol=1e-5)
        room = program._ledger._room
        assert room == {thread: thread.device.memory - size for thread, size in always.items()}
    assert 0 < refused < 4


@needs_two_cpus
def test_a_full_memory_is_an_error_that_names_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_memory, "PATIENCE_S", 0.05)
    module = fusion.compile(layers(), target=[f"{TARGETS[0]}?memory=130K"])
    assert isinstance(module, DeviceModule)
    program = module._program
    (thread,) = program.once.threads
    program._ledger._room[thread] = kept_by_request(program.once)[thread] * 1.5
    stream = module.stream(itertools.repeat(X))
    next(stream)
    next(stream)  # with room for one request a stream has one under way
    with program._ledger.held(program.once), pytest.raises(LimitError, match=TARGETS[0]):
        next(stream)
    stream.close()
    module(X)
    with pytest.raises(LimitError, match=r"too little memory|fits the model into the memories"):
        fusion.compile(layers(), target=[f"{TARGETS[0]}?memory=90K"])
