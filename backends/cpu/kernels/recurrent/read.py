"""RNN, GRU and LSTM over a whole sequence as one kernel: what is read of a PrimFunc, its weights packed.

The weights lie [direction][gate][panel][k][vectors of the panel], so that each panel is one stream. Those that only the
run knows are brought into that order before the first step.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np
from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.recurrent.emit import Loops
from backends.cpu.kernels.recurrent.plan import Demand, RecurrentPlan, recurrent_space
from backends.cpu.kernels.shared.packing import Array, pack_matmul
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Declined, NotRecognized, Repack, Scheduled
from backends.tensorir.space import Space
from backends.tensorir.stages import dtype_of, shape_of
from partition.recurrence import Recurrence, recurrence_of

_WEIGHTS = 1  # position among the parameters


@dataclass(frozen=True)
class Recurrent:
    """Template of PrimFuncs that say they are a recurrence."""

    name: str = "recurrent"

    def apply(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled | Declined:
        """Return the loops; declines whatever is no recurrence in float32."""
        try:
            point = self.space(func, machine, threads).default
            return self.emit(func, machine, point)
        except NotRecognized as reason:
            return Declined(str(reason))

    def space(self, func: tirx.PrimFunc, machine: Machine, threads: int) -> Space[RecurrentPlan]:
        """Return every register tile with every cut into tasks.

        Raises:
            NotRecognized: The function is no recurrence in float32.
        """
        recurrence, parameters = _read(func)
        steps, directions, batch, hidden = shape_of(parameters["sequence"])
        demand = Demand(directions, recurrence.gates, len(recurrence.phases()), steps, batch, hidden)
        return recurrent_space(demand, machine, threads)

    def emit(self, func: tirx.PrimFunc, machine: Machine, point: RecurrentPlan) -> Scheduled:
        """Return the loops of a point of the space."""
        recurrence, parameters = _read(func)
        hidden = shape_of(parameters["sequence"])[-1]
        width = point.tile.vectors * machine.vector_lanes
        shape = (recurrence.directions, recurrence.gates, -(-hidden // width), hidden, width)
        nest, weights = Nest(), parameters["weights"]
        packed = tirx.decl_buffer(shape, "float32", "packed")
        if not recurrence.constant:
            nest.add(tirx.AllocBuffer(packed))
            _pack(nest, weights, packed)
        Loops.make(nest, recurrence, {**parameters, "weights": packed}, point, machine).emit()
        body = nest.finish()
        if recurrence.constant:
            params = [packed if param.same_as(weights) else param for param in func.params]
            made = tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)
            repack = Repack(_WEIGHTS, partial(_packed, gates=recurrence.gates, width=width))
            return Scheduled(made, self.name, str(point), repack=repack, cycles=point.cycles)
        return Scheduled(func.with_body(body), self.name, str(point), cycles=point.cycles)


def _read(func: tirx.PrimFunc) -> tuple[Recurrence, dict[str, Var]]:
    recurrence = recurrence_of(func)
    if recurrence is None:
        raise NotRecognized("no recurrence")
    if any(dtype_of(param) != "float32" for param in func.params):
        raise NotRecognized("not in float32")
    return recurrence, dict(zip(recurrence.parameters(), func.params, strict=True))


def _packed(weights: Array, gates: int, width: int) -> Array:
    """Return [directions, gates * hidden, hidden] as [directions, gates, panels, hidden, width]."""
    directions, _, hidden = weights.shape
    parts = weights.reshape(directions, gates, hidden, hidden)
    return np.stack([np.stack([pack_matmul(gate.T, width) for gate in part]) for part in parts])


def _pack(nest: Nest, weights: Var, packed: Var) -> None:
    """Emit the same of weights that only the run knows."""
    directions, gates, panels, hidden, width = shape_of(packed)
    with nest.loop("task", directions * gates * panels, ForKind.PARALLEL) as task:
        panel, gate = tirx.floormod(task, panels), tirx.floordiv(task, panels)
        d, g = tirx.floordiv(gate, gates), tirx.floormod(gate, gates)
        with nest.loop("k", hidden) as k, nest.loop("lane", width) as lane:
            unit = panel * width + lane
            weight = tirx.BufferLoad(weights, [d, g * hidden + tirx.min(unit, hidden - 1), k])
            nest.store(packed, [d, g, panel, k, lane], weight)
