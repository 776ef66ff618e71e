"""The generators themselves: no operator is forgotten, what goes wrong is seen, and a finding gets small."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.fuzz import trials, verdicts
from tests.fuzz.case import Case, Outcome
from tests.fuzz.draw import np_dtype, type_proto
from tests.fuzz.engines import Ran, run_fusion, run_onnxruntime
from tests.fuzz.findings import write
from tests.fuzz.graphs import make_case
from tests.fuzz.known import KNOWN
from tests.fuzz.minimise import minimise
from tests.fuzz.operators import ROWS, UNDRAWN
from tests.fuzz.verdicts import judge
from tests.fuzz.worker import Job, Worker

ROOT = Path(__file__).parents[2]


def test_every_operator_has_a_row() -> None:
    """An operator of onnx has a row, or a reason why not; nothing else has one."""
    operators = {(schema.domain, schema.name) for schema in onnx.defs.get_all_schemas_with_history()}
    assert set(ROWS) | set(UNDRAWN) == operators
    assert not set(ROWS) & set(UNDRAWN)


def test_what_is_permitted_has_a_row_in_the_docs() -> None:
    rows = (ROOT / "docs" / "limits.md").read_text().splitlines()
    assert not [known.row for known in KNOWN if not any(row.startswith(f"| {known.row}") for row in rows)]


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


def wrong_tanh(model: onnx.ModelProto, inputs: dict, threads: int) -> Ran:
    """Run `model`, and be wrong by a percent where it has a Tanh and some input is below zero."""
    made = run_fusion(model, inputs, threads)
    below = any((array < 0).any() for array in inputs.values())
    if below and any(node.op_type == "Tanh" for node in model.graph.node):
        return replace(made, values={name: value * np.float32(1.01) for name, value in made.values.items()})
    return made


def test_integers_that_float64_rounds_are_told_apart() -> None:
    large = np.array([3, 2**62])
    found = verdicts.difference({"y": large + np.array([0, 9])}, {"y": large})
    assert f"1 of 2, [{2**62 + 9}] for [{2**62}]" in found


def test_a_sequence_beside_a_narrow_type_is_judged_by_the_reference() -> None:
    text = """<ir_version: 10, opset_import: ["": 20]> graph (float8e5m2 x, float[2] row, int64 one)
        => (bool y, seq(float[1]) parts) { y = IsInf (x) parts = SplitToSequence (row, one) }"""
    inputs = {"x": np.array(1, np_dtype("float8_e5m2")), "row": np.ones(2, np.float32), "one": np.array(1)}
    model = onnx.parser.parse_model(text)
    assert run_onnxruntime(model, inputs).status == "no kernel"
    assert judge(Case("graphs", 0, model.SerializeToString(), inputs), silent).verdict == "same"


def test_nodes_of_onnx_runtimes_own_making_refuse_nothing() -> None:
    """Its form of CenterCropPad is of int64 alone; of a scalar onnx's reference makes nothing."""
    sizes = onnx.numpy_helper.from_array(np.array(1, np.int32), "sizes")
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 18]> graph (float[1] x, int32 sizes) => (float[1] y) '
        "{ y = CenterCropPad (x, sizes) }"
    )
    del model.graph.input[1]
    model.graph.initializer.append(sizes)
    case = Case("graphs", 0, model.SerializeToString(), {"x": np.ones(1, np.float32)}, "input 1 of shape ()")
    assert judge(case, silent).verdict == "no oracle"


@pytest.mark.parametrize(
    ("large", "last", "made", "verdict"),
    [
        (1e308, 1e308, np.nan, "same"),
        (1e308, 1e308, -1e300, "differs"),
        (1e308, -np.inf, np.nan, "same"),
        (1.0, -np.inf, np.nan, "differs"),
        (1.0, 1.0, np.inf, "differs"),
    ],
)
def test_sums_that_leave_their_type(
    large: float, last: float, made: float, verdict: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fusion may have made NaN or an infinity of them, and of no others."""
    text = """<ir_version: 8, opset_import: ["": 17]> graph (double[2,3] x, double[3,1] w) => (double[2,1] y)
        { sums = MatMul (x, w) y = Neg (sums) }"""
    inputs = {"x": np.array([[large, large, last], [1, 2, 3]]), "w": np.ones((3, 1))}
    case = Case("graphs", 0, onnx.parser.parse_model(text).SerializeToString(), inputs)
    values = {"y": np.array([[made], [-6.0]])}
    monkeypatch.setattr(verdicts, "run_fusion", lambda *_: Ran("ran", values))
    assert judge(case, silent).verdict == verdict
    values["y"][1] = np.nan
    assert judge(case, silent).verdict == "differs"


@pytest.mark.parametrize(
    ("by", "first", "verdict"), [(1, 0, "same"), (-1, 0, "differs"), (2, 0, "differs"), (0, 1, "differs")]
)
def test_interpolated_integers(by: int, first: int, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole number may be one less, what is to be cut off in any case may not."""
    text = """<ir_version: 4, opset_import: ["": 8]> graph (int32[1,1,1,2] x) => (int32[1,1,1,4] y)
        { y = Upsample <mode = "linear", scales = [1.0, 1.0, 1.0, 2.0]> (x) }"""
    model, inputs = onnx.parser.parse_model(text), {"x": np.array([[[[9, 4]]]], np.int32)}
    values = run_onnxruntime(model, inputs).values
    assert values["y"].ravel().tolist() == [9, 6, 4, 4]
    made = values["y"] - np.array([by, first, 0, 0], np.int32)
    monkeypatch.setattr(verdicts, "run_fusion", lambda *_: Ran("ran", {"y": made}))
    assert judge(Case("graphs", 0, model.SerializeToString(), inputs), silent).verdict == verdict


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


def test_a_finding_is_written_as_a_test(tmp_path: Path) -> None:
    """With the model as text, or as bytes where text would not say all; here it passes, as the case is right."""
    for number, case in enumerate((chain("Tanh"), make_case(3))):
        folder = tmp_path / str(number)
        write(Outcome("graphs", number, "differs", "by 1", "Tanh opset 17 (float)", case=case), folder)
        (script,) = folder.glob("test_*.py")
        found: dict = {}
        exec(compile(script.read_text(), str(script), "exec"), found)
        assert found["MODEL"] == case.model or number == 0
        assert all(np.array_equal(found["INPUTS"][name], array) for name, array in case.inputs.items())
        found["test_it_is_right"]()


def test_a_finding_whose_names_are_no_text_is_written(tmp_path: Path) -> None:
    case = replace(chain("Tanh"), model=chain("Tanh").model.replace(b"v1", b"v\xed"))
    write(Outcome("files", 0, "untyped", "UnicodeDecodeError", "onnx file", case=case), tmp_path)
    (script,) = tmp_path.glob("test_*.py")
    found: dict = {}
    exec(compile(script.read_text(), str(script), "exec"), found)
    assert found["MODEL"] == case.model


@pytest.mark.parametrize(
    ("ran", "verdict"),
    [
        (Ran("refused", message="F204: no"), "refused"),
        (Ran("internal", message="F901: no"), "internal"),
        (Ran("untyped", message="KeyError: 1"), "untyped"),
    ],
)
def test_errors_where_onnx_runtime_runs(ran: Ran, verdict: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "run_fusion", lambda *_: ran)
    assert judge(chain("Neg"), silent).verdict == verdict


def test_a_result_where_onnx_runtime_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    case = replace(chain("Neg"), inputs={"v0": np.ones((2, 5), np.float32)}, note="another shape")
    monkeypatch.setattr(verdicts, "run_fusion", lambda _, inputs, threads: Ran("ran", {"v1": -inputs["v0"]}))
    assert judge(case, silent).verdict == "accepted"


@pytest.fixture
def worker() -> Iterator[Worker]:
    made = Worker(trials.misbehave, memory=512 << 20)
    yield made
    made.stop()


def test_pages_beside_memory_are_guarded(tmp_path: Path) -> None:
    """In a process of its own, as the workers' server must start with the library."""
    script = (
        "from pathlib import Path; from tests.fuzz import guard, trials; from tests.fuzz.worker import Job, Worker\n"
        f"guard.preload(Path({str(tmp_path)!r}))\n"
        "for side, offsets in (('after', (0, 99, 100)), ('before', (0, 99, -1))):\n"
        "    worker = Worker(trials.touch)\n"
        "    print(*(worker.run(Job('graphs', offset, guard=side)).verdict for offset in offsets))\n"
        "    worker.stop()\n"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.stdout.split() == ["same", "same", "signal"] * 2, done.stderr


def test_a_worker_outlives_its_cases(worker: Worker) -> None:
    """What ends a worker, or holds it up, or wants too much memory, is a verdict, and the next case is tried."""
    verdicts = [
        worker.run(Job("graphs", seed), seconds=1.0 if seed == 2 else 30.0).verdict for seed in (0, 1, 0, 2, 0, 3, 0)
    ]
    assert verdicts == ["same", "signal", "same", "hang", "same", "memory", "same"]
