"""RNN, GRU and LSTM over a whole sequence as one kernel, its weights packed.

The weights lie [direction][gate][panel][k][vectors of the panel], so that each panel is one stream. Those that only the
run knows are brought into that order before the first step.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cpu.kernels.recurrent.loops import emit_loops
from backends.cpu.kernels.recurrent.open_loops import emit_open_loops
from backends.cpu.kernels.recurrent.open_plan import OpenRecurrentPlan
from backends.cpu.kernels.recurrent.plan import RecurrentPlan
from backends.cpu.kernels.recurrent.read import RecurrentKernel, read_recurrent
from backends.cpu.kernels.recurrent.step import Steps
from backends.cpu.kernels.shared.lowering.packing import Array, pack_matmul
from backends.cpu.kernels.shared.register_tile import RegisterTile
from backends.cpu.machine import Machine
from backends.tensorir.emit import Nest
from backends.tensorir.result import Repack, Scheduled
from backends.tensorir.stages import shape_of

_WEIGHTS = 1  # position among the parameters
RECURRENT = "recurrent"


def emit_recurrent(func: tirx.PrimFunc, kernel: RecurrentKernel, machine: Machine, point: RecurrentPlan) -> Scheduled:
    """Return the loops of a point of the space."""
    return _emitted(func, kernel, machine, tile=point.tile, cut=str(point), emit=lambda steps: emit_loops(steps, point))


def emit_open_recurrent(func: tirx.PrimFunc, machine: Machine, threads: int) -> Scheduled:
    """Return the loops for any number of steps and sequences.

    Raises:
        Declined: It is no recurrence in float32.
    """
    kernel = read_recurrent(func)
    plan = OpenRecurrentPlan.of(kernel, machine, threads)
    return _emitted(
        func, kernel, machine, tile=plan.table.tile, cut=str(plan), emit=lambda steps: emit_open_loops(steps, plan)
    )


def _emitted(
    func: tirx.PrimFunc, kernel: RecurrentKernel, machine: Machine, tile: RegisterTile, cut: str,
    emit: Callable[[Steps], None],
) -> Scheduled:  # fmt: skip
    recurrence, weights = kernel.recurrence, kernel.parameters["weights"]
    *_, hidden = shape_of(weights)
    width = tile.vectors * machine.vector_lanes
    shape = (recurrence.directions, recurrence.gates, -(-hidden // width), hidden, width)
    nest = Nest()
    packed = tirx.decl_buffer(shape, "float32", "packed")
    if not recurrence.constant:
        nest.add(tirx.AllocBuffer(packed))
        _pack(nest, weights, packed)
    emit(Steps.make(nest, recurrence, {**kernel.parameters, "weights": packed}, tile, machine))
    body = nest.finish()
    if not recurrence.constant:
        return Scheduled(func.with_body(body), RECURRENT, cut)
    params = [packed if param.same_as(weights) else param for param in func.params]
    made = tirx.PrimFunc(params, body, func.ret_type, attrs=func.attrs)
    repack = Repack((_WEIGHTS,), partial(_packed, gates=recurrence.gates, width=width))
    return Scheduled(made, RECURRENT, cut, repack=repack)


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
