"""Neighbouring results of a reduction in the registers of a thread: what is added to them, and how they are stored."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from tvm import tirx
from tvm.ir import Var
from tvm.tirx import ForKind

from backends.cuda.kernels.device_arithmetic import combined
from backends.cuda.kernels.inlined import plain_load
from backends.cuda.kernels.pointwise.bring import InShared
from backends.cuda.kernels.pointwise.emit import compute_elements
from backends.cuda.kernels.reductions.read import Reduction
from backends.cuda.kernels.registers import Lanes, Loaded, copy_lanes
from backends.tensorir.emit import Expr, Nest, int64
from backends.tensorir.flat_buffers import store_flat
from backends.tensorir.inlining import Place, Resolver

_UNROLLED = 4
"""Turns of an innermost loop that are written out."""


def accumulate(
    nest: Nest, reduction: Reduction, *, results: Var, lanes: Lanes, at: Sequence[Expr], place: Place = plain_load
) -> None:
    """Add what combines one element that each lane reads with what it has of its result.

    Args:
        results: Registers.
        lanes: Knows the ranges of all variables of `at`.
        at: Indices of the results' axes and of the reduced ones.
        place: Gives the load of an element that is read.
    """
    stage = reduction.stage
    resolver = Resolver(reduction.prologue, place, lanes.analyzer())
    axes = (axis.var for axis in (*stage.spatial, *stage.reduce))
    value = resolver.resolve(stage.value, dict(zip(axes, at, strict=True)))
    loaded = Loaded(nest, lanes)
    bindings = loaded.bind(resolver.bindings)
    value = loaded.take(value)
    so_far = tirx.BufferLoad(results, [lanes.var])
    body = [*bindings, store_flat(results, lanes.var, combined(stage, so_far, value))]
    nest.add_loop(lanes.var, int64(lanes.many), ForKind.UNROLLED, body)


def add_loops(nest: Nest, loops: Sequence[tuple[Var, int]], body: list[tirx.Stmt]) -> None:
    """Add loops around `body`, of which short innermost ones are written out."""
    for number, (var, extent) in enumerate(reversed(loops)):
        kind = ForKind.UNROLLED if number == 0 and extent <= _UNROLLED else ForKind.SERIAL
        with nest.apart() as around:
            nest.add_loop(var, int64(extent), kind, body)
        body = around
    nest.extend(body)


def store_results(
    reduction: Reduction, nest: Nest, begin: Expr, lanes: Lanes, results: Var,
    held: Mapping[Var, InShared] = MappingProxyType({}),
) -> None:  # fmt: skip
    """Add what stores the results in registers, or what the epilogue makes of them.

    Args:
        begin: The position of the first.
        held: What the epilogue reads that is in the block's shared memory.
    """
    if reduction.epilogue is None:
        copy_lanes(nest, reduction.stage.buffer, begin, results, int64(0), many=lanes.many)
    else:
        made = {reduction.stage.buffer: results}
        compute_elements(nest, reduction.epilogue, begin, lanes, made, brought=held)
