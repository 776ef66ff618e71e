"""Apply the outputs of an anchor to a register tile that has been accumulated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial

from tvm import tirx
from tvm.ir import Call, Range, Var
from tvm.sym import Analyzer
from tvm.tirx import ForKind

from backends.cpu import bfloat16
from backends.cpu.costs import CALL_OPERATIONS, EPILOGUE_OPERATIONS
from backends.cpu.kernels.shared.lane_runs import DIVISIONS, Runs, find_runs, is_contiguous
from backends.tensorir.emit import Expr, Nest, prefetch, ramp, splat
from backends.tensorir.roles import Output
from backends.tensorir.stages import substitute
from fusion.structural import contains, find

_OPERATIONS = (tirx.Add, tirx.Sub, tirx.Mul, tirx.Div, tirx.FloorDiv, tirx.FloorMod, tirx.Max, tirx.Min, tirx.Select)

Coordinates = Callable[[Expr, Expr, Expr], list[Expr]]


class RegisterRows:
    """The accumulators of a tile: for each row one buffer a vector, small enough for LLVM to keep it in a register.

    One buffer for all would be larger than what TVM puts on the stack (1 KiB): it became heap memory, taken and
    given back for every tile, and no prefetch could stand in the loop without every accumulator being stored in each
    step.
    """

    def __init__(self, nest: Nest, rows: int, parts: Sequence[tuple[int, int]], dtype: str = "float32") -> None:
        self._nest = nest
        self.parts = list(parts)
        self._buffers = [
            [nest.allocate(f"acc{row}_{at}", (lanes,), dtype) for at, lanes in parts] for row in range(rows)
        ]
        for row in range(rows):
            for index, (_, lanes) in enumerate(parts):
                self.write(row, index, splat(tirx.const(0, dtype), lanes))

    @property
    def rows(self) -> int:
        return len(self._buffers)

    def accumulate(self, row: int, part: int, product: Expr) -> None:
        """Add a vector to one accumulator."""
        self.write(row, part, self.read(row, part) + product)

    def read(self, row: int, part: int) -> Expr:
        """Return the whole vector of one accumulator."""
        return tirx.BufferLoad(self._buffers[row][part], [ramp(0, self.parts[part][1])])

    def lane(self, row: int, channel: int, lane: Expr) -> Expr:
        """Return lane `channel + lane`, counted over the row's vectors, where all lie in one of them."""
        part = max(index for index, (at, _) in enumerate(self.parts) if at <= channel)
        return tirx.BufferLoad(self._buffers[row][part], [lane + (channel - self.parts[part][0])])

    def write(self, row: int, part: int, value: Expr) -> None:
        """Set the whole vector of one accumulator."""
        self._nest.store(self._buffers[row][part], [ramp(0, self.parts[part][1])], value)


@dataclass(frozen=True)
class Epilogue:
    """The outputs of an anchor, applied to one register tile after another.

    A costly epilogue reads the accumulators back from scratch in a loop: unrolled over 28 registers, one sigmoid
    made a kernel compile in 0.7 s instead of 0.1.

    Attributes:
        outputs: What to compute and where to store it.
        scratch: The accumulators of a tile, for a costly epilogue.
        rounds: Whether the kernel has the CPU's instructions for bfloat16.
    """

    outputs: tuple[Output, ...]
    scratch: Var | None
    rounds: bool = False

    @staticmethod
    def prepare(
        nest: Nest, outputs: tuple[Output, ...], elements: int, rounds: bool = False, dtype: str = "float32"
    ) -> Epilogue:  # fmt: skip
        """Return the epilogue of tiles of up to `elements` sums; scratch is allocated where `nest` stands."""
        costly = sum(_cost(output) for output in outputs) > EPILOGUE_OPERATIONS
        return Epilogue(outputs, nest.allocate("tile", (elements,), dtype) if costly else None, rounds)

    @cached_property
    def _divides(self) -> list[bool]:
        """Whether there are divisions in the indices of each output, which TVM may not see through."""
        any_division = (DIVISIONS, lambda _: True)
        return [any(contains(index, any_division) for index in output.indices) for output in self.outputs]

    def store(
        self,
        nest: Nest,
        registers: RegisterRows,
        size: tuple[int, int],
        channels: Sequence[tuple[int, int]],
        at: Coordinates,
    ) -> None:
        """Store a tile of height x width rows; `channels` are the (offset, lanes) to keep of each.

        `at(i, j, channel)` gives the coordinates of row i, j of the tile.
        """
        height, width = size
        if self.scratch is None:
            for i in range(height):
                for j in range(width):
                    row = i * width + j
                    self.store_row(nest, channels, partial(registers.lane, row), partial(at, i, j))
            return
        self.keep(nest, registers)
        self.store_kept(nest, size, sum(lanes for _, lanes in registers.parts), channels, at)

    def keep(self, nest: Nest, registers: RegisterRows) -> None:
        """Store the accumulators of a tile in scratch, row by row."""
        stride = sum(lanes for _, lanes in registers.parts)
        for row in range(registers.rows):
            for part, (offset, lanes) in enumerate(registers.parts):
                nest.store(self.scratch, [ramp(row * stride + offset, lanes)], registers.read(row, part))

    def store_kept(
        self, nest: Nest, size: tuple[Expr, Expr], stride: int, channels: Sequence[tuple[int, int]], at: Coordinates,
        pitch: Expr | None = None,
    ) -> None:  # fmt: skip
        """Store a tile as `store` does, whose accumulators are in scratch, `stride` a pixel and as many pixels as it is
        wide, or `pitch`, a row."""
        height, width = size
        with nest.loop("row_of_tile", height) as i, nest.loop("column_of_tile", width) as j:
            base = (i * (width if pitch is None else pitch) + j) * stride
            self.store_row(
                nest,
                channels,
                lambda offset, lane: tirx.BufferLoad(self.scratch, [base + (offset + lane)]),
                partial(at, i, j),
            )

    def store_row(
        self,
        nest: Nest,
        channels: Sequence[tuple[int, int]],
        read: Callable[[int, Expr], Expr],
        at: Callable[[Expr], list[Expr]],
    ) -> None:
        """Store the `channels` of a row, (offset, lanes): `read(offset, lane)` gives the sum of one, `at(offset)` its
        coordinates."""
        for offset, lanes in channels:
            lane = Var("lane", "int64")
            analyzer = Analyzer()
            analyzer.bind(lane, Range(0, lanes))
            where = at(offset + lane)
            for output, divides in zip(self.outputs, self._divides, strict=True):
                indices, value = output.at(where, read(offset, lane))
                indices = [analyzer.simplify(index) for index in indices]
                if self.rounds and lanes == bfloat16.LANES and _is_rounded(value) and is_contiguous(indices, lane):
                    self._store_rounded(nest, output.buffer, indices, lane, value.value)
                    continue
                runs = find_runs(indices, lane, lanes) if divides else None
                if runs is not None:
                    _store_runs(nest, output.buffer, runs, value=value, lane=lane, lanes=lanes)
                    continue
                store = tirx.BufferStore(output.buffer, value, indices)
                nest.add_loop(lane, lanes, ForKind.VECTORIZED if lanes > 1 else ForKind.SERIAL, [store])

    def fetch(self, nest: Nest, at: list[Expr]) -> None:
        """Fetch the lines of what is stored at these coordinates, to be written."""
        for output in self.outputs:
            indices, _ = output.at(at, tirx.const(0.0, "float32"))
            prefetch(nest, tirx.BufferLoad(output.buffer, indices), writes=True)

    def _store_rounded(self, nest: Nest, buffer: Var, indices: Sequence[Expr], lane: Var, value: Expr) -> None:
        """Store a vector as bfloat16; `value` and `indices` are those of one lane."""
        wide = nest.allocate("wide", (bfloat16.LANES,))
        nest.add_loop(lane, bfloat16.LANES, ForKind.VECTORIZED, [tirx.BufferStore(wide, value, [lane])])
        first = [substitute(index, {lane: tirx.const(0, "int64")}) for index in indices]
        vector = tirx.BufferLoad(wide, [ramp(0, bfloat16.LANES)])
        nest.add(bfloat16.store(tirx.BufferLoad(buffer, first), vector))


def _store_runs(nest: Nest, buffer: Var, runs: Runs, value: Expr, lane: Var, lanes: int) -> None:
    """Store a vector run by run; `value` is that of one lane."""
    there = substitute(value, {lane: runs.run * runs.length + runs.inside})
    store = tirx.BufferStore(buffer, there, list(runs.indices))
    with nest.apart() as vector:
        nest.add_loop(runs.inside, runs.length, ForKind.VECTORIZED, [store])
    nest.add_loop(runs.run, lanes // runs.length, ForKind.UNROLLED, vector)


def _is_rounded(value: Expr) -> bool:
    return isinstance(value, tirx.Cast) and str(value.ty.dtype) == "bfloat16" and str(value.value.ty.dtype) == "float32"


def _cost(output: Output) -> int:
    """Return the operations of one element, those of its indices included."""
    found = [node for expr in (*output.indices, output.value) for node in find(expr, (*_OPERATIONS, Call))]
    return sum(CALL_OPERATIONS if isinstance(node, Call) else 1 for node in found)
