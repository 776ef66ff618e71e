"""Runs of lanes that are stored next to each other behind a transposition of heads."""

from __future__ import annotations

import pytest
from tvm.ir import Var
from tvm.sym import Analyzer
from tvm.tirx import IntImm, floordiv, floormod

from backends.cpu.kernels.shared.lane_runs import find_runs, is_contiguous
from backends.tensorir.stages import substitute

_LANES = 16


def _number(value: object) -> IntImm:
    return IntImm("int64", value)


def _heads(size: int, step: int, shift: int = 0) -> tuple[Var, Var, list[object]]:
    """Return a panel, a lane of it, and where the lane is stored in heads of this size, 100 numbers apart."""
    panel, lane = Var("panel", "int64"), Var("lane", "int64")
    channel = panel * step + shift + lane
    return panel, lane, [panel, floordiv(channel, size) * 100 + floormod(channel, size)]


@pytest.mark.parametrize(
    ("size", "step", "length"), [(36, 48, 4), (24, 16, 8), (48, 48, 16), (60, 32, 4), (32, 16, 16)]
)
def test_runs_are_where_the_lanes_were(size: int, step: int, length: int) -> None:
    panel, lane, indices = _heads(size, step)
    runs = find_runs(indices, lane, _LANES)
    assert runs is not None
    assert runs.length == length
    assert is_contiguous(runs.indices, runs.inside)
    analyzer = Analyzer()
    for number in range(7):
        for at in range(_LANES):
            before = {panel: _number(number), lane: _number(at)}
            after = {panel: _number(number), runs.run: _number(at // length), runs.inside: _number(at % length)}
            expected = [int(analyzer.simplify(substitute(index, before))) for index in indices]
            assert [int(analyzer.simplify(substitute(index, after))) for index in runs.indices] == expected


def test_heads_inside_heads() -> None:
    panel, lane = Var("panel", "int64"), Var("lane", "int64")
    inner = floormod(panel * 32 + lane, 96)
    runs = find_runs([floordiv(inner, 24), floormod(inner, 24)], lane, _LANES)
    assert runs is not None
    assert runs.length == 8


@pytest.mark.parametrize(("size", "step", "shift"), [(18, 16, 0), (36, 48, 2), (36, 7, 0)])
def test_lanes_that_lie_apart_have_none(size: int, step: int, shift: int) -> None:
    _, lane, indices = _heads(size, step, shift)
    assert find_runs(indices, lane, _LANES) is None


def test_a_whole_vector_needs_none() -> None:
    panel, lane = Var("panel", "int64"), Var("lane", "int64")
    assert find_runs([floordiv(panel, 3), panel * 16 + lane], lane, _LANES) is None


def test_every_second_element_has_none() -> None:
    panel, lane = Var("panel", "int64"), Var("lane", "int64")
    assert find_runs([floormod(panel * 16 + lane * 2, 32)], lane, _LANES) is None
