"""Apply the outputs of an anchor to a register tile that has been accumulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tvm import tirx
from tvm.ir import Call, Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind
from tvm_ffi.structural import structural_walk

from backends.cpu.anchors.roles import Output
from backends.cpu.emit import Expr, Nest, ramp

UNROLLED_COST = 12  # an epilogue beyond this is emitted once in a loop over the tile, not once per register
_CALL_COST = 12  # a math call becomes a polynomial of about as many operations
_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min, tirx.Select)

Coordinates = Callable[[Expr, Expr, Expr], list[Expr]]


def store_tile(
    nest: Nest, outputs: Sequence[Output], acc: Var, size: tuple[int, int], stride: int, parts: list[tuple[int, int]], at: Coordinates
) -> None:
    """Store height x width rows of `acc`, `stride` apart, each in the vectors `parts` = (offset, lanes).

    `at(i, j, channel)` gives the coordinates of row i, j. A costly epilogue reads the accumulators back from memory in a loop:
    unrolled over 28 registers, one sigmoid made a kernel compile in 0.7 s instead of 0.1.
    """
    height, width = size
    if sum(_cost(output) for output in outputs) <= UNROLLED_COST:
        for i in range(height):
            for j in range(width):
                _store_row(nest, outputs, acc, (i * width + j) * stride, parts, lambda c, i=i, j=j: at(i, j, c))
        return
    result = nest.allocate("result", (height * width * stride,))
    for row in range(height * width):
        for offset, lanes in parts:
            where = [ramp(row * stride + offset, lanes)]
            nest.store(result, where, tirx.BufferLoad(acc, where))
    with nest.loop("row_of_tile", height) as i, nest.loop("column_of_tile", width) as j:
        _store_row(nest, outputs, result, (i * width + j) * stride, parts, lambda c: at(i, j, c))


def _store_row(
    nest: Nest, outputs: Sequence[Output], source: Var, base: Expr, parts: list[tuple[int, int]], at: Callable[[Expr], list[Expr]]
) -> None:
    for offset, lanes in parts:
        lane = Var("lane", "int64")
        analyzer = Analyzer()
        analyzer.bind(lane, Range(0, lanes))
        where = at(offset + lane)
        for output in outputs:
            indices, value = output.at(where, tirx.BufferLoad(source, [base + (offset + lane)]))
            store = tirx.BufferStore(output.buffer, value, [analyzer.simplify(index) for index in indices])
            nest.add_loop(lane, lanes, ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL, [store])


def _cost(output: Output) -> int:
    """Return the operations of one element, those of its indices included."""
    found: list[Any] = []
    for expr in (*output.indices, output.value):
        for kind in _OPERATIONS:
            structural_walk(expr, (kind, found.append))
        structural_walk(expr, (Call, lambda call: found.extend([call] * _CALL_COST)))
    return len(found)
