"""The loops of a recurrence: a block for each direction of a sequence, a warp for each hidden unit in turn."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

from tvm import tirx

from backends.cuda.codegen.device_functions import barrier
from backends.cuda.devices import WARP
from backends.cuda.kernels.launch import bound_loop
from backends.cuda.kernels.warps import shuffled
from backends.tensorir.emit import Nest, int64
from backends.tensorir.stages import dtype_of, shape_of
from fusion.declined import Declined
from partition.recurrence import LENGTHS, Recurrence, StepPhase, Unit, recurrence_of

Expr = Any  # a TensorIR expression

THREADS = 512
_WARPS = THREADS // WARP
_SHARED_FLOATS = (48 << 10) // 4
"""What every block may have."""


def emit_recurrence(func: tirx.PrimFunc) -> tirx.PrimFunc:
    """Return `func` with its loops.

    ```
    for block: direction, sequence; for thread
      states = those at the start                                           in shared memory
      for step
        for phase
          for unit in turns of a warp
            sums = weights[unit, lane::32] * states[lane::32]               lanes add theirs up by shuffles
            next = the equations of the unit
          barrier; states = next; barrier
      last_states = states
    ```

    Raises:
        Declined: It is no recurrence of float32, or its states are more than shared memory holds.
    """
    recurrence = recurrence_of(func)
    if recurrence is None:
        raise Declined("it is no recurrence")
    names = recurrence.parameters()
    buffers = dict(zip(names, func.params, strict=True))
    if any(dtype_of(buffer) != "float32" for name, buffer in buffers.items() if name != LENGTHS):
        raise Declined("it computes in another type than float32")
    steps, directions, batch, hidden = shape_of(buffers["sequence"])
    made = (*recurrence.states, *["reset"] * (len(recurrence.phases()) > 1))
    if 2 * len(made) * hidden > _SHARED_FLOATS:
        raise Declined(f"the states of {hidden} hidden units are more than shared memory holds")
    if 0 in (steps, batch, hidden):
        raise Declined("it is empty")
    nest = Nest()
    with (
        bound_loop(nest, "blockIdx.x", directions * batch) as block,
        bound_loop(nest, "threadIdx.x", THREADS) as thread,
    ):
        states, following = (
            {name: _shared(nest, f"{prefix}{name}", hidden) for name in made} for prefix in ("", "next_")
        )
        direction, sequence = tirx.floordiv(block, int64(batch)), tirx.floormod(block, int64(batch))
        layer = _Layer(
            nest, recurrence, buffers,
            states=states, following=following, direction=direction, sequence=sequence, thread=thread,
        )  # fmt: skip
        layer.emit(steps, hidden)
    return func.with_body(nest.finish())


def _shared(nest: Nest, name: str, size: int) -> tirx.Buffer:
    buffer = tirx.decl_buffer((size,), "float32", name, scope="shared")
    nest.add(tirx.AllocBuffer(buffer))
    return buffer


@contextmanager
def _strided(nest: Nest, first: Expr, step: int, size: int) -> Iterator[Expr]:
    """Open a loop over `first`, `first + step`, ... below `size`."""
    with nest.loop("turn", -(-size // step)) as turn:
        at = nest.bind("at", turn * step + first)
        if size % step:
            with nest.when(at < size):
                yield at
        else:
            yield at


@dataclass(frozen=True)
class _Layer:
    """One direction of one sequence.

    Attributes:
        buffers: The parameters of the PrimFunc by their names.
        states, following: What units have, and will have behind the phase that is computed.
    """

    nest: Nest
    recurrence: Recurrence
    buffers: Mapping[str, tirx.Buffer]
    states: Mapping[str, tirx.Buffer]
    following: Mapping[str, tirx.Buffer]
    direction: Expr
    sequence: Expr
    thread: Expr

    def emit(self, steps: int, hidden: int) -> None:
        """Add all steps."""
        nest, at = self.nest, (self.direction, self.sequence)
        for name in self.recurrence.states:
            with self._own(hidden) as unit:
                first = self.recurrence.first(tirx.BufferLoad(self.buffers[name], [*at, unit]), self._length())
                nest.store(self.states[name], [unit], first)
        barrier(self.nest)
        with nest.loop("step", steps) as step:
            for phase in self.recurrence.phases():
                self._phase(phase, step, steps=steps, hidden=hidden)
        for name in self.recurrence.states:
            with self._own(hidden) as unit:
                nest.store(self.buffers[f"last_{name}"], [*at, unit], tirx.BufferLoad(self.states[name], [unit]))

    def _own(self, hidden: int) -> AbstractContextManager[Expr]:
        """Open a loop over the units whose states this thread moves."""
        return _strided(self.nest, self.thread, step=THREADS, size=hidden)

    def _phase(self, phase: StepPhase, step: Expr, steps: int, hidden: int) -> None:
        nest, recurrence = self.nest, self.recurrence
        warp, lane = tirx.floordiv(self.thread, int64(WARP)), tirx.floormod(self.thread, int64(WARP))
        place = recurrence.step(self.direction, step, steps)
        changed: list[str] = []
        with nest.loop("turn", -(-hidden // _WARPS)) as turn:
            asked = nest.bind("asked", turn * _WARPS + warp)
            unit = nest.bind("unit", tirx.min(asked, int64(hidden - 1)))  # shuffles need all lanes of a warp
            sums = self._sums(phase, unit, lane=lane, hidden=hidden)
            values = phase.update(self._unit(place, unit, sums, hidden=hidden))
            length = self._length()
            is_within = None if length is None else place < length
            kept = recurrence.kept(values, partial(self._load, unit=unit), is_within)
            found = {name: nest.bind(name, value) for name, value in kept.items()}
            with nest.when(tirx.all(lane < 1, asked < hidden)):
                for name, value in found.items():
                    if name == "sequence":
                        nest.store(self.buffers[name], [place, self.direction, self.sequence, unit], value)
                    else:
                        nest.store(self.following[name], [unit], value)
                        changed.append(name)
        barrier(self.nest)
        for name in changed:
            with self._own(hidden) as unit:
                nest.store(self.states[name], [unit], tirx.BufferLoad(self.following[name], [unit]))
        barrier(self.nest)

    def _sums(self, phase: StepPhase, unit: Expr, lane: Expr, hidden: int) -> dict[int, Expr]:
        """Return the products of the unit's weights with states, by gate, which all lanes have."""
        nest, sums = self.nest, dict[int, Expr]()
        for first, gates, read in phase.products:
            for gate in range(first, first + gates):
                total = tirx.decl_buffer((1,), "float32", f"sum{gate}", scope="local")
                so_far = tirx.BufferLoad(total, [int64(0)])
                nest.add(tirx.AllocBuffer(total))
                nest.store(total, [int64(0)], tirx.const(0, "float32"))
                with _strided(nest, lane, step=WARP, size=hidden) as k:
                    weight = tirx.BufferLoad(self.buffers["weights"], [self.direction, gate * hidden + unit, k])
                    nest.store(total, [int64(0)], so_far + weight * tirx.BufferLoad(self.states[read], [k]))
                for distance in (16, 8, 4, 2, 1):
                    nest.store(total, [int64(0)], so_far + shuffled(so_far, distance))
                sums[gate] = so_far
        return sums

    def _unit(self, place: Expr, unit: Expr, sums: Mapping[int, Expr], hidden: int) -> Unit:
        recurrence, buffers, d = self.recurrence, self.buffers, self.direction

        def projected(gate: int) -> Expr:
            column = (d * recurrence.gates + gate) * hidden + unit
            return tirx.BufferLoad(buffers["projected"], [place, self.sequence, column])

        def peephole(gate: int) -> Expr | None:
            has_any = recurrence.peepholes
            return tirx.BufferLoad(buffers["peepholes"], [d, gate * hidden + unit]) if has_any else None

        return Unit(
            projected=projected,
            product=lambda gate: sums[gate],
            load=lambda name: self._load(name, unit),
            peephole=peephole,
            activate=lambda index, value: recurrence.activate(d, index, self.nest.bind("before", value)),
            name=lambda name, value: self.nest.bind(f"unit_{name}", value),  # "new" is a word of C++
        )

    def _load(self, name: str, unit: Expr) -> Expr:
        if name == "bias":
            return tirx.BufferLoad(self.buffers["bias"], [self.direction, unit])
        return tirx.BufferLoad(self.states[name], [unit])

    def _length(self) -> Expr | None:
        has_any = self.recurrence.lengths
        return tirx.BufferLoad(self.buffers[LENGTHS], [self.sequence]).astype("int64") if has_any else None
