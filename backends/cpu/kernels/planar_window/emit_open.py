"""A window over lines, planes of one row, of which only a call knows how many there are, or how long.

    parallel task: (image, channels)                `shared/open_images`
      for block of channels                         what lies under them stays in L1
        copy each, padded, to scratch
        for channel, tile of vectors                a body for a tile of several vectors, and one for a vector
          registers = window of scratch
          outputs = epilogue(registers)
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import inf

from tvm import tirx
from tvm.ir import Var

from backends.cpu.kernels.shared.epilogue import Epilogue, RegisterRows
from backends.cpu.kernels.shared.open_images import OpenGrid, OpenTask
from backends.cpu.kernels.shared.window import Window
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, int64, ramp, splat, vector_runs
from backends.tensorir.result import Scheduled
from backends.tensorir.roles import Roles, read_roles
from backends.tensorir.stages import dims_of
from fusion.declined import Declined

_WIDEST = 4
"""Vectors of a tile."""
_UNROLLED_STEPS = 512
"""Multiply-adds of a register tile beyond which the window's columns are a loop."""


def emit_open_planar(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for lines of any length.

    Raises:
        Declined: It has another form, any number of channels, or planes of several rows: those took up to 1.9 times
            as long as with the loops of their sizes.
    """
    roles, nest = read_roles(func), Nest()
    batch, channels, height, _ = roles.shape
    if not isinstance(channels, int):
        raise Declined("only a call knows how many channels there are")
    line = OpenLine.of(nest, roles, machine.vector_lanes)
    if (height, line.window.kernel[0]) != (1, 1) or line.window.padding[0] or line.window.padding[2]:
        raise Declined("its planes have several rows")
    grid = OpenGrid.of(batch, 1, line.size * 4, channels, machine=machine, threads=threads)
    with grid.tasks(nest) as task:
        _TaskWriter.of(nest, roles, line, machine).emit(task)
    return Scheduled(func.with_body(nest.finish()), roles.kind, f"{grid}; {_WIDEST}v{machine.vector_lanes}")


@dataclass(frozen=True)
class OpenLine:
    """A line of scratch, as `plan.Line`, of which a call knows the length.

    Attributes:
        first, end: The positions of a phase for which all phases lie inside the image.
        needed: How many positions the taps read.
        pitch: Elements of a phase.
    """

    window: Window
    width: Expr
    first: int
    end: Expr
    needed: Expr
    pitch: Expr

    @staticmethod
    def of(nest: Nest, roles: Roles, lanes: int) -> OpenLine:
        """Return the line for the width of a call."""
        window, width = Window.from_annotation(roles.attrs["window"]), int64(dims_of(roles.operands[0])[3])
        stride, left, out_width = window.strides[1], window.padding[1], int64(roles.shape[3])
        shift = (window.kernel[1] - 1) * window.dilation[1] // stride
        first = -(-left // stride)
        needed = nest.settle("needed", out_width + shift)
        inside = tirx.min(tirx.truncdiv(width + left, int64(stride)), needed)
        end = nest.settle("inside_end", tirx.max(int64(first), inside))
        length = tirx.max(tirx.max(out_width, int64(lanes)) + shift, end)
        pitch = nest.settle("pitch", tirx.truncdiv(length + (lanes - 1), int64(lanes)) * lanes)
        return OpenLine(window, width, first, end=end, needed=needed, pitch=pitch)

    @property
    def size(self) -> Expr:
        """Elements of all its phases."""
        return self.pitch * self.window.strides[1]


@dataclass(frozen=True)
class _TaskWriter:
    """Writes a task: some channels of an image.

    Attributes:
        block: Channels that are copied before the first of them is computed, as in `PlanarPlan`.
    """

    nest: Nest
    roles: Roles
    line: OpenLine
    scratch: Var
    block: Expr
    epilogue: Epilogue
    lanes: int

    @staticmethod
    def of(nest: Nest, roles: Roles, line: OpenLine, machine: Machine) -> _TaskWriter:
        """Return the writer of a task, its scratch allocated and padded."""
        together = tirx.truncdiv(int64(machine.l1_bytes // 8), line.size)
        block = nest.settle("channels_of_block", tirx.max(tirx.min(together, int64(roles.shape[1])), int64(1)))
        size, lanes = nest.settle("scratch_size", line.size * block), machine.vector_lanes
        scratch = nest.allocate("lines", (size,))
        epilogue = Epilogue.prepare(nest, roles.outputs, _WIDEST * lanes)
        writer = _TaskWriter(nest, roles, line, scratch, block=block, epilogue=epilogue, lanes=lanes)
        with nest.loop("v", tirx.truncdiv(size, int64(lanes))) as v:
            nest.store(scratch, [ramp(v * lanes, lanes)], writer.identity)
        return writer

    @property
    def takes_max(self) -> bool:
        """Whether a window gives the maximum of what it sees, and not the sum."""
        return bool(int(self.roles.attrs["takes_max"]))

    @property
    def identity(self) -> Expr:
        """What a window that sees nothing gives, in all lanes."""
        return splat(tirx.const(-inf if self.takes_max else 0.0, "float32"), self.lanes)

    def emit(self, task: OpenTask) -> None:
        """Emit the blocks of the channels."""
        nest = self.nest
        many = nest.settle("many", task.stop - task.start)
        with nest.loop("block", tirx.truncdiv(many + (self.block - 1), self.block)) as block:
            first = nest.settle("first_channel", task.start + block * self.block)
            here = nest.settle("here", tirx.min(self.block, task.stop - first))
            with nest.loop("slot", here) as slot:
                self._copy([task.image, nest.settle("c", first + slot), int64(0)], slot * self.line.size)
            with nest.loop("slot", here) as slot:
                self._compute([task.image, nest.settle("c", first + slot), int64(0)], slot * self.line.size)

    def _copy(self, source: list[Expr], begin: Expr) -> None:
        """Copy a line of the image, its elements dealt out to the phases that taps read."""
        nest, line, data = self.nest, self.line, self.roles.operands[0]
        start = nest.settle("line_start", begin)
        stride, left = line.window.strides[1], line.window.padding[1]
        phases = sorted({kx * line.window.dilation[1] % stride for kx in range(line.window.kernel[1])})
        for position in ([int64(line.first - 1)] if line.first else []) + ([line.end] if stride > 1 else []):
            for phase in phases:
                column = position * stride + phase - left
                with nest.when(tirx.all(position < line.needed, column >= 0, column < line.width)):
                    nest.store(
                        self.scratch, [start + line.pitch * phase + position],
                        tirx.BufferLoad(data, [*source, column]),
                    )  # fmt: skip
        many = nest.settle("whole_positions", line.end - line.first)
        for at, lanes in vector_runs(nest, many, self.lanes):
            position = nest.settle("position", line.first + at)
            loads = [
                nest.bind(f"part{i}", tirx.BufferLoad(
                    data, [*source, ramp(position * stride - left + i * lanes, lanes)]
                ))
                for i in range(stride)
            ]  # fmt: skip
            for phase in phases:
                order = [tirx.const(phase + stride * i, "int32") for i in range(lanes)]
                value = loads[0] if stride == 1 else loads[phase] if lanes == 1 else tirx.Shuffle(loads, order)
                nest.store(self.scratch, [ramp(start + line.pitch * phase + position, lanes)], value)

    def _compute(self, at: list[Expr], begin: Expr) -> None:
        """Emit the tiles of a line."""
        nest, lanes, columns = self.nest, self.lanes, int64(self.roles.shape[3])
        start = nest.settle("line_start", begin)
        with nest.when(columns < lanes), nest.masked(columns):
            self._tile(at, start, [int64(0)])
        with nest.when(columns >= lanes):
            vectors = nest.settle("vectors", tirx.truncdiv(columns + (lanes - 1), int64(lanes)))
            for first, many in _tiles(nest, vectors):
                places = (tirx.min((first + i) * lanes, columns - lanes) for i in range(many))
                self._tile(at, start, [nest.settle("x", place) for place in places])

    def _tile(self, at: list[Expr], start: Expr, columns: list[Expr]) -> None:
        """Emit a register tile: vectors from each of `columns` on."""
        nest, taps = self.nest, self.line.window.kernel[1]
        registers = RegisterRows(nest, len(columns), [(0, self.lanes)])
        if self.takes_max:
            for row in range(registers.rows):
                registers.write(row, 0, self.identity)
        if len(columns) * taps <= _UNROLLED_STEPS:
            for kx in range(taps):
                self._tap(registers, int64(kx), at[1], start, columns)
        else:
            with nest.loop("kx", taps) as kx:
                self._tap(registers, kx, at[1], start, columns)

        def column(j: Expr) -> Expr:
            if isinstance(j, int):
                return columns[j]
            chosen = columns[0]
            for index, each in enumerate(columns[1:], 1):
                chosen = tirx.Select(j == index, each, chosen)
            return chosen

        self.epilogue.store(
            nest, registers, (1, len(columns)), registers.parts, lambda _, j, lane: [*at, column(j) + lane]
        )

    def _tap(self, registers: RegisterRows, kx: Expr, channel: Expr, start: Expr, columns: list[Expr]) -> None:
        """Add one column of the window to the tile."""
        nest, window = self.nest, self.line.window
        stride, shift = window.strides[1], kx * window.dilation[1]
        begin = start + tirx.truncmod(shift, int64(stride)) * self.line.pitch + tirx.truncdiv(shift, int64(stride))
        factor = None
        for weight in self.roles.operands[1:]:
            factor = nest.bind("w", splat(tirx.BufferLoad(weight, [channel, int64(0), kx]), self.lanes))
        for row, column in enumerate(columns):
            value = nest.bind("v", tirx.BufferLoad(self.scratch, [ramp(begin + column, self.lanes)]))
            if self.takes_max:
                registers.write(row, 0, tirx.max(registers.read(row, 0), value))
            else:
                registers.accumulate(row, 0, value if factor is None else value * factor)


def _tiles(nest: Nest, vectors: Expr) -> Iterator[tuple[Expr, int]]:
    """Yield (first vector, how many) inside a loop over tiles; the last one ends where the line ends."""
    whole = tirx.truncdiv(vectors + (_WIDEST - 1), int64(_WIDEST))
    with nest.when(vectors >= _WIDEST), nest.loop("x_tile", whole) as tile:
        yield nest.settle("vector", tirx.min(tile * _WIDEST, vectors - _WIDEST)), _WIDEST
    with nest.when(vectors < _WIDEST), nest.loop("x_tile", vectors) as tile:
        yield nest.settle("vector", int64(tile)), 1
