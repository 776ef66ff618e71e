"""Large results lie in large pages where the system has such for who asks, and are the caller's own."""

from __future__ import annotations

import resource
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper
from tvm import relax

import fusion
from fusion.errors import LimitError
from fusion.module.advise_results import advise_results
from fusion.module.build import _planned
from fusion.module.preallocate import preallocate
from fusion.system import memory
from tests.module import small_models
from tests.module.small_models import FLOAT

_ENABLED = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HUGE_PAGES = _ENABLED.exists() and "[never]" not in _ENABLED.read_text()
ROWS, COLUMNS, PAGE = 10_000, 1024, 4096


def addition(rows: int | str) -> onnx.ModelProto:
    """Return a[rows, 1024] + row[1024] = y."""
    nodes = [helper.make_node("Add", ["a", "row"], ["y"])]
    row = {"row": np.ones(COLUMNS, np.float32)}
    return small_models.model(nodes, [("a", FLOAT, [rows, COLUMNS])], [("y", FLOAT, [rows, COLUMNS])], row)


@pytest.mark.parametrize("rows", ["rows", ROWS])
def test_large_results_take_few_pages_and_stay(rows: int | str, tmp_path: Path) -> None:
    module = fusion.compile(addition(rows), wait=True, hot_shapes=0)
    module(np.zeros((ROWS, COLUMNS), np.float32))
    module.save(tmp_path / "m.fusion")
    module = fusion.load(tmp_path / "m.fusion")
    kept, faults = [], []
    for value in range(3):
        a = np.full((ROWS, COLUMNS), value, np.float32)
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        kept.append(module(a)[0])
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    for value, result in enumerate(kept):
        assert (result == value + 1).all()
        result += 1  # which is nobody else's memory
    assert [float(result[0, 0]) for result in kept] == [2, 3, 4]
    if sys.platform == "linux" and HUGE_PAGES:
        assert min(faults) < ROWS * COLUMNS * 4 // PAGE // 2, faults


@pytest.mark.parametrize("rows", ["rows", ROWS])
def test_a_run_whose_parts_fit_but_together_do_not_is_an_error(
    rows: int | str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An input and a result of 41 MB each, of which neither is too large: the system would end the process."""
    monkeypatch.setattr(memory, "usable_memory", lambda: 2 * ROWS * COLUMNS * 4 - 1)
    a = np.zeros((ROWS, COLUMNS), np.float32)
    with pytest.raises(LimitError, match="a run that needs 81,920,000 bytes"):
        fusion.compile(addition(rows), wait=True, hot_shapes=0)(a)
    monkeypatch.undo()
    module = fusion.compile(addition(rows), wait=True, hot_shapes=0)
    assert (module(a)[0] == 1).all()


def advised(shape: tuple[object, ...], results: int = 1) -> int:
    """Return how many calls `main` gets that adds 1 to x as often as told, where x has this shape."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [builder.emit(relax.op.add(x, relax.const(float(n)))) for n in range(results)]
            result = builder.emit_output(relax.Tuple(values))
        builder.emit_func_output(result)
    mod, _ = preallocate(_planned(relax.transform.LegalizeOps()(builder.get()), {}), 1, {})
    again = advise_results(mod)
    calls = [text for text in again["main"].script().splitlines() if "advise_result" in text]
    assert ("advise_result" in {symbol.name_hint for symbol in again.functions}) == bool(calls)
    return len(calls)


def test_small_results_are_left_alone() -> None:
    assert advised((4, 4)) == 0
    assert advised((1023, 1024)) == 0


def test_each_that_is_or_may_be_large_is_asked_for() -> None:
    assert advised((1024, 1024)) == 1
    assert advised((1024, 1024), results=3) == 3
