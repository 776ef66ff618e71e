"""The generators themselves: no operator is forgotten, what goes wrong is seen, and a finding gets small."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.fuzz import verdicts
from tests.fuzz.case import Case, Outcome
from tests.fuzz.draw import type_proto
from tests.fuzz.engines import Ran, run_fusion
from tests.fuzz.graphs import make_case
from tests.fuzz.minimise import minimise
from tests.fuzz.operators import ROWS, UNDRAWN
from tests.fuzz.verdicts import judge
from tests.fuzz.worker import Job, Worker


def test_every_operator_has_a_row() -> None:
    """An operator of onnx has a row, or a reason why not; nothing else has one."""
    operators = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert set(ROWS) | set(UNDRAWN) == operators
    assert not set(ROWS) & set(UNDRAWN)


def test_a_seed_makes_one_case() -> None:
    for seed in (3, 5, 10):
        first, second = make_case(seed), make_case(seed)
        assert first.model == second.model
        assert all(np.array_equal(first.inputs[name], second.inputs[name]) for name in first.inputs)


def chain(*operators: str) -> Case:
    """Return a case of operators of one input, one after the other, over eight rows of five numbers."""
    names = [f"v{at}" for at in range(len(operators) + 1)]
    nodes = [helper.make_node(kind, [a], [b]) for kind, a, b in zip(operators, names, names[1:], strict=False)]
    array = np.linspace(-2, 2, 40, dtype=np.float32).reshape(8, 5)
    infos = [helper.make_value_info(name, type_proto(array, shape=array.shape)) for name in (names[0], names[-1])]
    graph = helper.make_graph(nodes, "chain", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return Case("graphs", 0, model.SerializeToString(), {names[0]: array})


def wrong_tanh(model: onnx.ModelProto, inputs: dict) -> Ran:
    """Run `model`, and be wrong by a percent where it has a Tanh and some input is below zero."""
    made = run_fusion(model, inputs)
    below = any((array < 0).any() for array in inputs.values())
    if below and any(node.op_type == "Tanh" for node in model.graph.node):
        return replace(made, values={name: value * np.float32(1.01) for name, value in made.values.items()})
    return made


def silent(stage: str) -> None:
    """Hear of a stage."""


def test_a_right_result_is_the_same() -> None:
    assert judge(chain("Neg", "Tanh"), silent).verdict == "same"


def test_a_wrong_result_is_found_and_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "run_fusion", wrong_tanh)
    found = judge(chain("Neg", "Sin", "Tanh", "Abs", "Neg"), silent)
    assert found.verdict == "differs"
    small = minimise(found, lambda case: judge(case, silent), lambda case: verdicts.tensors(case.proto(), case.inputs))
    assert small.case is not None
    assert [node.op_type for node in small.case.proto().graph.node] == ["Tanh"]
    assert max(array.size for array in small.case.inputs.values()) == 1


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (Ran("refused", message="F204: no"), "refused"),
        (Ran("internal", message="F901: no"), "internal"),
        (Ran("untyped", message="KeyError: 1"), "untyped"),
    ],
)
def test_errors_where_onnx_runtime_runs(ran: Ran, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "run_fusion", lambda model, inputs: ran)
    assert judge(chain("Neg"), silent).verdict == verdict


def test_a_result_where_onnx_runtime_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(chain("Neg"), inputs={"v0": np.ones((2, 5), np.float32)}, note="another shape")
    monkeypatch.setattr(verdicts, "run_fusion", lambda model, inputs: Ran("ran", {"v1": -inputs["v0"]}))
    assert judge(case, silent).verdict == "accepted"


def misbehave(job: Job, stage: Callable[[str], None]) -> Outcome:
    """Crash, hang or take memory, as the seed of the job says."""
    stage("fusion")
    if job.seed == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    if job.seed == 2:
        time.sleep(60)
    if job.seed == 3:
        try:
            bytearray(1 << 30)
        except MemoryError:
            return Outcome(job.kind, job.seed, "memory")
    return Outcome(job.kind, job.seed, "same")


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(misbehave, memory=512 << 20)
    yield made
    made.stop()


def test_a_worker_outlives_its_cases(worker: Worker) -> None:
    """What ends a worker, or holds it up, or wants too much memory, is a verdict, and the next case is tried."""
    verdicts = [
        worker.run(Job("graphs", seed), seconds=3.0 if seed == 2 else 30.0).verdict for seed in (0, 1, 0, 2, 0, 3, 0)
    ]
    assert verdicts == ["same", "signal", "same", "hang", "same", "memory", "same"]
