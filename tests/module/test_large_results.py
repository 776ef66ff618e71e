"""Large results lie in large pages where the system has such for who asks, are the caller's own, and leave their memory
to later ones."""

from __future__ import annotations

import gc
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
from fusion.module.build import plan_calls
from fusion.module.plan import Argument
from fusion.module.result_memory import ResultMemory
from fusion.system import memory
from fusion.tensors import as_numpy, byte_view
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


def test_what_callers_have_let_go_of_is_used_again_and_nothing_else() -> None:
    module = fusion.compile(addition("rows"), wait=True, hot_shapes=0)
    a = np.arange(ROWS * COLUMNS, dtype=np.float32).reshape(ROWS, COLUMNS)
    first = module(a)[0]
    place = first.ctypes.data
    part = first[ROWS // 2 :]
    del first
    second = module(-a)[0]
    assert second.ctypes.data != place
    assert (part == a[ROWS // 2 :] + 1).all()
    del part
    fewer = a[: ROWS * 3 // 4]
    third = module(fewer)[0]
    assert third.ctypes.data == place
    assert (third == fewer + 1).all()
    assert (second == 1 - a).all()


def test_a_small_result_does_not_keep_the_memory_of_a_large_one() -> None:
    memory_of_results = ResultMemory()
    places = []
    for rows in (ROWS, ROWS // 4, ROWS // 2 + 1, 1):
        result = memory_of_results.giver(Argument("fresh", 0, (rows, COLUMNS), "float32"))()
        assert tuple(result.shape) == (rows, COLUMNS)
        places.append(as_numpy(result).ctypes.data)
    large, quarter, half, _ = places
    assert half == large != quarter


def test_memory_that_is_kept_is_bounded() -> None:
    """A caller that kept many results and lets go of all of them at once leaves what two runs need."""
    memory_of_results = ResultMemory()
    take = memory_of_results.giver(Argument("fresh", 0, (1024, COLUMNS), "bfloat16"))
    results = [take() for _ in range(20)]
    places = {byte_view(result).ctypes.data for result in results}
    assert len(places) == len(results)
    results.clear()
    gc.collect()
    again = [take() for _ in range(3)]
    assert {byte_view(result).ctypes.data for result in again[:2]} < places
    assert sum(len(blocks) for blocks in memory_of_results._idle.values()) == 0


def given(shape: tuple[object, ...], results: int = 1) -> int:
    """Return how many results `main` is given memory for that adds 1 to x as often as told, where x has this shape."""
    builder = relax.BlockBuilder()
    x = relax.Var("x", relax.TensorType(shape, "float32"))
    with builder.function("main", [x]):
        with builder.dataflow():
            values = [builder.emit(relax.op.add(x, relax.const(float(n)))) for n in range(results)]
            result = builder.emit_output(relax.Tuple(values))
        builder.emit_func_output(result)
    mod, plan = plan_calls(relax.transform.LegalizeOps()(builder.get()), 1)
    assert len(mod["main"].params) == 1 + len(plan.buffers) + len(plan.given)
    return len(plan.given)


def test_small_results_are_left_to_the_virtual_machine() -> None:
    assert given((4, 4)) == 0
    assert given((255, 1024)) == 0


def test_memory_is_given_for_each_large_one() -> None:
    assert given((256, 1024)) == 1
    assert given((256, 1024), results=3) == 3
