"""RNN, GRU and LSTM over a whole sequence as one kernel: its loops.

The loops where a task has a direction, or some of its sequences, to itself:

    parallel task: (direction, chunk of the sequences)
      for step
        for phase                                        one, but for a GRU that resets before its product
          for gate, panel of hidden units                sums = state x weights, the micro-kernel of `contraction`
          for sequence, vector of hidden units           states = the equations, on sums and projected inputs

and where threads share the hidden units (`plan` decides):

    for step
      for phase
        parallel task: (direction, share of the panels)
          ...

The state of a step is in one half of a buffer, that of the step before in the other, so that no unit sees a new one too
early.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import NamedTuple

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.recurrent.plan import RecurrentPlan
from backends.cpu.kernels.shared.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.split import Split, tile_count
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64, ramp, vector_runs
from backends.tensorir.roles import Output
from backends.tensorir.stages import shape_of
from partition.recurrence import Recurrence, StepPhase, Unit


@dataclass(frozen=True)
class _Task:
    """What a task computes: some sequences of a direction, some panels of hidden units.

    Attributes:
        direction: Its number.
        rows: How the sequences are cut into register tiles.
        first_tile, tiles: Which of these are the task's.
        first_panel, panels: Which panels of each gate are the task's.
        sums: The products, [gate][sequence of the task][hidden unit].
        epilogue: Stores them.
    """

    direction: Expr
    rows: Split
    first_tile: Expr
    tiles: Expr
    first_panel: Expr
    panels: Expr
    sums: Var
    epilogue: Epilogue

    @property
    def first_row(self) -> Expr:
        return self.rows.start(self.first_tile)

    @property
    def many_rows(self) -> Expr:
        return self.rows.start(self.first_tile + self.tiles) - self.first_row


class Sizes(NamedTuple):
    """The axes of the sequence of states."""

    steps: int
    directions: int
    batch: int
    hidden: int


@dataclass(frozen=True)
class Loops:
    """Writes the loops of one plan.

    Attributes:
        buffers: The parameters by name, the weights packed, and "state" [half][direction][sequence][hidden unit] and
            "reset".
    """

    nest: Nest
    recurrence: Recurrence
    buffers: Mapping[str, Var]
    plan: RecurrentPlan
    lanes: int

    @staticmethod
    def make(
        nest: Nest, recurrence: Recurrence, parameters: Mapping[str, Var], plan: RecurrentPlan, machine: Machine
    ) -> Loops:
        """Return the writer, the states of a step allocated."""
        _, *state = shape_of(parameters["sequence"])
        scratch = {"state": nest.allocate("state", (2, *state))}
        if len(recurrence.phases()) > 1:
            scratch["reset"] = nest.allocate("reset", state)
        return Loops(nest, recurrence, {**parameters, **scratch}, plan, machine.vector_lanes)

    @property
    def sizes(self) -> Sizes:
        """Those of the network."""
        return Sizes(*shape_of(self.buffers["sequence"]))

    @property
    def all_panels(self) -> int:
        """How many panels a gate has."""
        return shape_of(self.buffers["weights"])[2]

    def emit(self) -> None:
        """Add the loops."""
        if self.plan.shares > 1:
            self._shared()
        else:
            self._alone()

    def _alone(self) -> None:
        nest, (steps, directions, batch, _) = self.nest, self.sizes
        rows = Split.of(batch, self.plan.tile.height)
        chunks = Split(rows.count, self.plan.row_chunks)
        tasks = directions * chunks.count
        with nest.loop("task", tasks, ForKind.PARALLEL if tasks > 1 else ForKind.SERIAL) as index:
            chunk, direction = tirx.floormod(index, chunks.count), tirx.floordiv(index, chunks.count)
            first = nest.bind("first_tile", int64(chunks.start(chunk)))
            task = self._task(direction, rows, (first, tile_count(chunks, chunk)), (int64(0), self.all_panels))
            self._start(direction, task.first_row, task.many_rows)
            with nest.loop("step", steps) as step:
                for phase in self.recurrence.phases():
                    self._phase(task, phase, step)

    def _shared(self) -> None:
        nest, (steps, directions, batch, _) = self.nest, self.sizes
        rows, shares = Split.of(batch, self.plan.tile.height), Split(self.all_panels, self.plan.shares)
        whole = (int64(0), rows.count)
        with nest.loop("direction", directions) as direction:
            self._start(direction, int64(0), batch)
        with nest.loop("step", steps) as step:
            for phase in self.recurrence.phases():
                with nest.loop("task", directions * shares.count, ForKind.PARALLEL) as index:
                    share, direction = tirx.floormod(index, shares.count), tirx.floordiv(index, shares.count)
                    first = nest.bind("first_panel", int64(shares.start(share)))
                    self._phase(self._task(direction, rows, whole, (first, tile_count(shares, share))), phase, step)

    def _task(self, direction: Expr, rows: Split, tiles: tuple[Expr, Expr], panels: tuple[Expr, Expr]) -> _Task:
        nest, (*_, batch, hidden), tile = self.nest, self.sizes, self.plan.tile
        (first_tile, many), (first_panel, count) = tiles, panels
        size = (self.recurrence.gates, self.plan.longest_task(batch), hidden)
        sums = nest.allocate("sums", (prod(size),))
        gate, row, unit = (Var(name, "int64") for name in ("gate", "row", "unit"))
        accumulator = Var("accumulator", "float32")
        place = (gate * size[1] + (row - rows.start(first_tile))) * hidden + unit
        output = Output(sums, (gate, row, unit), accumulator, (place,), accumulator)
        epilogue = Epilogue.prepare(nest, (output,), tile.rows * tile.vectors * self.lanes)
        return _Task(
            direction=direction,
            rows=rows,
            first_tile=first_tile,
            tiles=many,
            first_panel=first_panel,
            panels=count,
            sums=sums,
            epilogue=epilogue,
        )

    def _start(self, direction: Expr, first: Expr, rows: Expr) -> None:
        """Emit the states of some sequences before the first step."""
        nest, hidden = self.nest, self.sizes.hidden
        targets = {"hidden": (self.buffers["state"], [int64(0)]), "cell": (self.buffers.get("last_cell"), [])}
        with nest.loop("row", rows) as row:
            for at, count in vector_runs(nest, hidden, self.lanes):
                place = [direction, first + row, ramp(at, count)]
                for name in self.recurrence.states:
                    target, half = targets[name]
                    nest.store(target, [*half, *place], tirx.BufferLoad(self.buffers[name], place))

    def _phase(self, task: _Task, phase: StepPhase, step: Expr) -> None:
        """Emit a phase of a step of one task."""
        for first, gates, read in phase.products:
            with self.nest.loop("gate", gates) as index:
                self._products(task, first + index, read, step)
        self._update(task, phase, step)

    def _products(self, task: _Task, gate: Expr, read: str, step: Expr) -> None:
        """Emit the products of one gate's weights with a state."""
        (_, _, batch, hidden), plan, weights = self.sizes, self.plan, self.buffers["weights"]
        width = plan.tile.vectors * self.lanes
        state, half = (self.buffers["reset"], []) if read == "reset" else (self.buffers["state"], [_half(step)])
        extents = Extents(
            outer=1, groups=1, height=batch, width=1, channels=hidden, taps=(), depth=hidden, lanes=self.lanes,
            input_bytes=4 * batch * hidden,
        )  # fmt: skip
        work = Contraction(
            extents, padded_weights=True,
            load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(state, [*half, task.direction, y, k]),
            load_weights=lambda outer, group, n, taps, k, count: tirx.BufferLoad(
                weights,
                [task.direction, gate, tirx.floordiv(n, width), k, ramp(tirx.floormod(n, width), count)],
            ),
            coordinates=lambda outer, group, y, x, n: [gate, y, n],
            outputs=task.epilogue.outputs,
        )  # fmt: skip
        blocking = Blocking(plan.tile, 1, 1, 1)
        kernel = MicroKernel(
            nest=self.nest,
            work=work,
            blocking=blocking,
            load_rows=work.load_rows,
            outer=int64(0),
            epilogue=task.epilogue,
        )
        kernel.emit(task.first_panel, task.panels, task.rows, task.first_tile, task.tiles)

    def _update(self, task: _Task, phase: StepPhase, step: Expr) -> None:
        """Emit what the units of a task make of the products."""
        nest, hidden, width = self.nest, self.sizes.hidden, self.plan.tile.vectors * self.lanes
        last = self.all_panels - 1
        with nest.loop("row", task.many_rows) as row, nest.loop("panel", task.panels) as index:
            panel = nest.bind("panel", int64(task.first_panel + index))
            kinds = [(panel < last, width), (panel >= last, hidden - last * width)]
            for condition, units in kinds if last and hidden % width else [(None, min(width, hidden))]:
                with guard(nest, condition):
                    for at, count in vector_runs(nest, units, self.lanes):
                        self._vector(task, phase, step, (row, panel * width + at, count))

    def _vector(self, task: _Task, phase: StepPhase, step: Expr, place: tuple[Expr, Expr, int]) -> None:
        """Emit the equations of `count` neighbouring units of one sequence."""
        row, first, count = place
        lane, body = Var("lane", "int64"), list[tirx.Stmt]()
        steps, buffers = self.sizes.steps, self.buffers
        unit = _Lanes(loops=self, task=task, step=step, place=(row, first + lane), lane=(lane, count), body=body).unit()
        made = {name: unit.name(name, value) for name, value in phase.update(unit).items()}
        at = [task.direction, task.first_row + row, first + lane]
        stores = {"cell": [("last_cell", at)], "reset": [("reset", at)]}
        time = self.recurrence.step(task.direction, step, steps)
        stores["hidden"] = [("state", [_half(step + 1), *at]), ("sequence", [time, *at]), ("last_hidden", at)]
        for name, value in made.items():
            body += [tirx.BufferStore(buffers[target], value, indices) for target, indices in stores[name]]
        self.nest.add_loop(lane, count, ForKind.VECTORIZED if count > 1 else ForKind.SERIAL, body)


@dataclass
class _Lanes:
    """The equations of one lane of a vector.

    Attributes:
        place: Sequence of the task, and hidden unit.
        lane: The lane, and how many there are.
        body: The statements of the lane so far.
    """

    loops: Loops
    task: _Task
    step: Expr
    place: tuple[Expr, Expr]
    lane: tuple[Expr, int]
    body: list[tirx.Stmt]

    def unit(self) -> Unit:
        """Return what the equations read."""
        recurrence, buffers, task = self.loops.recurrence, self.loops.buffers, self.task
        steps, _, batch, hidden = self.loops.sizes
        index, n = self.place
        d, row = task.direction, task.first_row + index
        rows = self.loops.plan.longest_task(batch)
        time = recurrence.step(d, self.step, steps)
        places = {
            "hidden": ("state", [_half(self.step), d, row, n]),
            "cell": ("last_cell", [d, row, n]),
            "bias": ("bias", [d, n]),
        }

        def load(name: str) -> Expr:
            buffer, indices = places[name]
            return tirx.BufferLoad(buffers[buffer], indices)

        def peephole(gate: int) -> Expr | None:
            return tirx.BufferLoad(buffers["peepholes"], [d, gate * hidden + n]) if recurrence.peepholes else None

        return Unit(
            projected=lambda gate: tirx.BufferLoad(
                buffers["projected"], [time, row, (d * recurrence.gates + gate) * hidden + n]
            ),
            product=lambda gate: tirx.BufferLoad(task.sums, [(gate * rows + index) * hidden + n]),
            load=load,
            peephole=peephole,
            activate=lambda which, value: recurrence.activate(d, which, self._name("entering", value)),
            name=self._name,
        )

    def _name(self, name: str, value: Expr) -> Expr:
        """Keep a value in a buffer of one vector, which LLVM turns into a register."""
        lane, count = self.lane
        buffer = self.loops.nest.allocate(name, (count,))
        self.body.append(tirx.BufferStore(buffer, value, [lane]))
        return tirx.BufferLoad(buffer, [lane])


def _half(step: Expr) -> Expr:
    """Return which half of the states a step reads."""
    return tirx.floormod(step, 2)
