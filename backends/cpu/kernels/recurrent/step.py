"""A step of a recurrence: what a task computes of it, however its sequences are cut into register tiles."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.shared.contraction import Blocking, Contraction, MicroKernel
from backends.cpu.kernels.shared.epilogue import Epilogue
from backends.cpu.kernels.shared.extents import Extents
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.machine import Machine
from backends.tensorir.emit import Expr, Nest, guard, int64, ramp, vector_runs
from backends.tensorir.roles import Output
from backends.tensorir.stages import dims_of, shape_of
from partition.recurrence import LENGTHS, Recurrence, StepPhase, Unit


class TaskRows(Protocol):
    """The sequences of a task."""

    @property
    def first(self) -> Expr:
        """The first one."""
        ...

    @property
    def count(self) -> Expr:
        """How many there are."""
        ...

    def multiply(self, kernel: MicroKernel, first_panel: Expr, panels: Expr) -> None:
        """Emit their products with `panels` panels of weights."""
        ...


@dataclass(frozen=True)
class Task:
    """What a task computes: some sequences of a direction, some panels of hidden units.

    Attributes:
        direction: Its number.
        rows: Its sequences.
        first_panel, panels: Which panels of each gate are the task's.
        sums: The products, [gate][sequence of the task][hidden unit].
        most_rows: Sequences for which there is room in that.
        epilogue: Stores them.
    """

    direction: Expr
    rows: TaskRows
    first_panel: Expr
    panels: Expr
    sums: Var
    most_rows: Expr
    epilogue: Epilogue


class Sizes(NamedTuple):
    """The axes of the sequence of states; `steps` and `batch` are expressions where only a call knows them."""

    steps: Expr
    directions: int
    batch: Expr
    hidden: int


@dataclass(frozen=True)
class Steps:
    """Writes what a task computes.

    Attributes:
        buffers: The parameters by name, the weights packed, and "state" [half][direction][sequence][hidden unit] and
            "reset".
        tile: Sequences and vectors of hidden units that are multiplied in registers.
    """

    nest: Nest
    recurrence: Recurrence
    buffers: Mapping[str, Var]
    tile: RegisterTile
    lanes: int

    @staticmethod
    def make(
        nest: Nest, recurrence: Recurrence, parameters: Mapping[str, Var], tile: RegisterTile, machine: Machine
    ) -> Steps:
        """Return the writer, the states of a step allocated."""
        _, *state = dims_of(parameters["sequence"])
        scratch = {"state": nest.allocate("state", (2, *state))}
        if len(recurrence.phases()) > 1:
            scratch["reset"] = nest.allocate("reset", state)
        return Steps(nest, recurrence, {**parameters, **scratch}, tile, machine.vector_lanes)

    @property
    def sizes(self) -> Sizes:
        """Those of the network."""
        return Sizes(*dims_of(self.buffers["sequence"]))

    @property
    def all_panels(self) -> int:
        """How many panels a gate has."""
        return shape_of(self.buffers["weights"])[2]

    def task(self, direction: Expr, rows: TaskRows, panels: tuple[Expr, Expr], room: tuple[Expr, Expr]) -> Task:
        """Return a task, its sums allocated.

        Args:
            panels: The first, and how many.
            room: The most sequences of any task, as it is allocated and as it stands in indices.
        """
        nest, hidden, tile, gates = self.nest, self.sizes.hidden, self.tile, self.recurrence.gates
        allocated, most = room
        sums = nest.allocate("sums", (gates * allocated * hidden,))
        gate, row, unit = (Var(name, "int64") for name in ("gate", "row", "unit"))
        accumulator = Var("accumulator", "float32")
        place = (gate * most + (row - rows.first)) * hidden + unit
        output = Output(sums, (gate, row, unit), accumulator, (place,), accumulator)
        epilogue = Epilogue.prepare(nest, (output,), tile.rows * tile.vectors * self.lanes)
        return Task(direction, rows, *panels, sums=sums, most_rows=most, epilogue=epilogue)

    def start(self, direction: Expr, first: Expr, rows: Expr) -> None:
        """Emit the states of some sequences before the first step."""
        nest, hidden = self.nest, self.sizes.hidden
        targets = {"hidden": (self.buffers["state"], [int64(0)]), "cell": (self.buffers.get("last_cell"), [])}
        with nest.loop("row", rows) as row:
            for at, count in vector_runs(nest, hidden, self.lanes):
                place = [direction, first + row, ramp(at, count)]
                for name in self.recurrence.states:
                    target, half = targets[name]
                    nest.store(target, [*half, *place], self._first(name, place))

    def _first(self, name: str, place: list[Expr]) -> Expr:
        given = tirx.BufferLoad(self.buffers[name], place)
        return self.recurrence.first(given, self.length(place[1]))

    def length(self, sequence: Expr) -> Expr | None:
        """Return how many steps a sequence has; None where it has all."""
        return tirx.BufferLoad(self.buffers[LENGTHS], [sequence]) if self.recurrence.lengths else None

    def phase(self, task: Task, phase: StepPhase, step: Expr) -> None:
        """Emit a phase of a step of one task."""
        for first, gates, read in phase.products:
            with self.nest.loop("gate", gates) as index:
                self._products(task, first + index, read, step)
        self._update(task, phase, step)

    def _products(self, task: Task, gate: Expr, read: str, step: Expr) -> None:
        """Emit the products of one gate's weights with a state."""
        hidden, weights, width = self.sizes.hidden, self.buffers["weights"], self.tile.vectors * self.lanes
        state, half = (self.buffers["reset"], []) if read == "reset" else (self.buffers["state"], [_half(step)])
        work = Contraction(
            extents_of_sequence(hidden, self.lanes), padded_weights=True,
            load_rows=lambda outer, group, y, x, taps, k: tirx.BufferLoad(state, [*half, task.direction, y, k]),
            load_weights=lambda outer, group, n, taps, k, count: tirx.BufferLoad(
                weights,
                [task.direction, gate, tirx.floordiv(n, width), k, ramp(tirx.floormod(n, width), count)],
            ),
            coordinates=lambda outer, group, y, x, n: [gate, y, n],
            outputs=task.epilogue.outputs,
        )  # fmt: skip
        kernel = MicroKernel(
            nest=self.nest,
            work=work,
            blocking=Blocking(self.tile, 1, 1, 1),
            load_rows=work.load_rows,
            outer=int64(0),
            epilogue=task.epilogue,
        )
        task.rows.multiply(kernel, task.first_panel, task.panels)

    def _update(self, task: Task, phase: StepPhase, step: Expr) -> None:
        """Emit what the units of a task make of the products."""
        nest, hidden, width = self.nest, self.sizes.hidden, self.tile.vectors * self.lanes
        last = self.all_panels - 1
        with nest.loop("row", task.rows.count) as row, nest.loop("panel", task.panels) as index:
            panel = nest.bind("panel", int64(task.first_panel + index))
            kinds = [(panel < last, width), (panel >= last, hidden - last * width)]
            for condition, units in kinds if last and hidden % width else [(None, min(width, hidden))]:
                with guard(nest, condition):
                    for at, count in vector_runs(nest, units, self.lanes):
                        self._vector(task, phase, step, (row, panel * width + at, count))

    def _vector(self, task: Task, phase: StepPhase, step: Expr, place: tuple[Expr, Expr, int]) -> None:
        """Emit the equations of `count` neighbouring units of one sequence."""
        row, first, count = place
        lane, body = Var("lane", "int64"), list[tirx.Stmt]()
        steps, buffers = self.sizes.steps, self.buffers
        unit = _Lanes(steps=self, task=task, step=step, place=(row, first + lane), lane=(lane, count), body=body).unit()
        made = {name: unit.name(name, value) for name, value in phase.update(unit).items()}
        at = [task.direction, task.rows.first + row, first + lane]
        time, length = self.recurrence.step(task.direction, step, steps), self.length(task.rows.first + row)
        kept = self.recurrence.kept(made, unit.load, None if length is None else time < length)
        stores = {"cell": [("last_cell", at)], "reset": [("reset", at)], "sequence": [("sequence", [time, *at])]}
        stores["hidden"] = [("state", [_half(step + 1), *at]), ("last_hidden", at)]
        for name, value in kept.items():
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

    steps: Steps
    task: Task
    step: Expr
    place: tuple[Expr, Expr]
    lane: tuple[Expr, int]
    body: list[tirx.Stmt]

    def unit(self) -> Unit:
        """Return what the equations read."""
        recurrence, buffers, task = self.steps.recurrence, self.steps.buffers, self.task
        steps, *_, hidden = self.steps.sizes
        index, n = self.place
        d, row = task.direction, task.rows.first + index
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
            product=lambda gate: tirx.BufferLoad(task.sums, [(gate * task.most_rows + index) * hidden + n]),
            load=load,
            peephole=peephole,
            activate=lambda which, value: recurrence.activate(d, which, self._name("entering", value)),
            name=self._name,
        )

    def _name(self, name: str, value: Expr) -> Expr:
        """Keep a value in a buffer of one vector, which LLVM turns into a register."""
        lane, count = self.lane
        buffer = self.steps.nest.allocate(name, (count,))
        self.body.append(tirx.BufferStore(buffer, value, [lane]))
        return tirx.BufferLoad(buffer, [lane])


def _half(step: Expr) -> Expr:
    """Return which half of the states a step reads."""
    return tirx.floormod(step, 2)


def extents_of_sequence(hidden: int, lanes: int) -> Extents:
    """Return the sizes of the products of one gate for one sequence."""
    return Extents(
        outer=1, groups=1, height=1, width=1, channels=hidden, taps=(), depth=hidden, lanes=lanes,
        input_bytes=4 * hidden,
    )  # fmt: skip
