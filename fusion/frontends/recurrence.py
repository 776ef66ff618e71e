"""Writes a recurrence over a whole sequence as one PrimFunc of plain loops.

    last_hidden, last_cell = hidden, cell
    for step                                             serial: each needs the states that the one before left
      for direction, sequence, gate, unit, k             products += weights * last_hidden
      for direction, sequence, unit                      last_hidden, last_cell, sequence = the equations
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tvm import relax, tirx
from tvm.script.ir_builder import IRBuilder
from tvm.script.ir_builder import tirx as T

from partition.recurrence import LENGTHS, RECURRENCE, Recurrence, StepPhase, Unit

Expr = Any  # a TensorIR expression
Buffers = Mapping[str, Any]


@dataclass(frozen=True)
class RecurrenceSizes:
    """How many steps, sequences and hidden units."""

    steps: int
    batch: int
    hidden: int

    def wide(self) -> RecurrenceSizes:
        """Return the sizes as int64 constants, which extents of all kernels are."""
        return RecurrenceSizes(*(tirx.const(size, "int64") for size in (self.steps, self.batch, self.hidden)))

    def shapes(self, recurrence: Recurrence) -> dict[str, tuple[int, ...]]:
        """Return the shape of every parameter of the PrimFunc."""
        directions, width = recurrence.directions, recurrence.gates * self.hidden
        state = (directions, self.batch, self.hidden)
        known = {
            "projected": (self.steps, self.batch, directions * width),
            "weights": (directions, width, self.hidden),
            "bias": (directions, self.hidden),
            "peepholes": (directions, 3 * self.hidden),
            LENGTHS: (self.batch,),
            "sequence": (self.steps, *state),
        }
        return {name: known.get(name, state) for name in recurrence.parameters()}


def call_recurrence(
    builder: relax.BlockBuilder,
    recurrence: Recurrence,
    sizes: RecurrenceSizes,
    operands: Sequence[relax.Expr],
    dtype: str,
) -> list[relax.Var]:
    """Emit a call of the PrimFunc; return its results, the sequence first, then the last states.

    Args:
        operands: Its parameters but the results, of a floating-point `dtype`.
    """
    shapes = sizes.shapes(recurrence)
    symbol = builder.add_func(recurrence_func(recurrence, sizes, dtype), recurrence.kind.lower())
    types = [relax.TensorType(shapes[name], dtype) for name in recurrence.parameters()[len(operands) :]]
    made = builder.emit(relax.call_tir(symbol, relax.Tuple(list(operands)), types))
    return [builder.emit(relax.TupleGetItem(made, index)) for index in range(len(types))]


def recurrence_func(recurrence: Recurrence, sizes: RecurrenceSizes, dtype: str) -> tirx.PrimFunc:
    """Return the PrimFunc, its parameters those of `Recurrence.parameters`."""
    sizes = sizes.wide()
    with IRBuilder() as builder, T.prim_func(is_private=True, s_tir=True):
        T.func_name(recurrence.kind.lower())
        T.func_attr({"tirx.noalias": True, RECURRENCE: recurrence.attribute()})
        shapes = sizes.shapes(recurrence)
        buffers = {
            name: T.arg(name, T.buffer(shape, "int32" if name == LENGTHS else dtype)) for name, shape in shapes.items()
        }
        state = (recurrence.directions, sizes.batch, sizes.hidden)
        products = (*state[:2], recurrence.gates, sizes.hidden)
        buffers["products"] = T.sblock_alloc_buffer(products, dtype)
        buffers["reset"] = T.sblock_alloc_buffer(state, dtype)
        _Loops(recurrence, sizes, {name: T.buffer_proxy(buffer) for name, buffer in buffers.items()}, dtype).emit()
    return builder.get()


@dataclass(frozen=True)
class _Loops:
    recurrence: Recurrence
    sizes: RecurrenceSizes
    buffers: Buffers
    dtype: str

    def emit(self) -> None:
        """Emit the body of the PrimFunc."""
        recurrence, sizes = self.recurrence, self.sizes
        state = (recurrence.directions, sizes.batch, sizes.hidden)
        for name in recurrence.states:
            with T.grid(*state) as loops, T.sblock(f"first_{name}"):
                d, b, n = (T.axis.spatial(extent, var) for extent, var in zip(state, loops, strict=True))
                self.buffers[f"last_{name}"][d, b, n] = recurrence.first(self.buffers[name][d, b, n], self._length(b))
        with T.serial(0, sizes.steps) as step:
            for phase in recurrence.phases():
                for first, gates, read in phase.products:
                    self._products(step, first, gates, self.buffers["reset" if read == "reset" else f"last_{read}"])
                self._update(step, phase)

    def _products(self, step: Expr, first: int, gates: int, state: Any) -> None:
        """Emit the products of some gates' weights with a state."""
        hidden, products = self.sizes.hidden, self.buffers["products"]
        extents = (self.recurrence.directions, self.sizes.batch, gates, hidden)
        with T.grid(*extents, hidden) as loops, T.sblock("products"):
            T.axis.opaque(self.sizes.steps, step)
            *spatial, k = loops
            d, b, g, n = (T.axis.spatial(extent, var) for extent, var in zip(extents, spatial, strict=True))
            k = T.axis.reduce(hidden, k)
            with T.init():
                products[d, b, first + g, n] = tirx.const(0, self.dtype)
            weight = self.buffers["weights"][d, (first + g) * hidden + n, k]
            products[d, b, first + g, n] = products[d, b, first + g, n] + weight * state[d, b, k]

    def _update(self, step: Expr, phase: StepPhase) -> None:
        """Emit what the units make of the products."""
        extents = (self.recurrence.directions, self.sizes.batch, self.sizes.hidden)
        with T.grid(*extents) as loops, T.sblock(self.recurrence.kind.lower()):
            t = T.axis.opaque(self.sizes.steps, step)
            d, b, n = (T.axis.spatial(extent, var) for extent, var in zip(extents, loops, strict=True))
            at, length, unit = self.recurrence.step(d, t, self.sizes.steps), self._length(b), self._unit(t, d, b, n)
            made = {name: T.Bind(value) for name, value in phase.update(unit).items()}
            kept = self.recurrence.kept(made, unit.load, None if length is None else at < length)
            values = {name: T.Bind(value) for name, value in kept.items()}
            for name, value in values.items():
                if name == "sequence":
                    self.buffers[name][at, d, b, n] = value
                else:
                    self.buffers["reset" if name == "reset" else f"last_{name}"][d, b, n] = value

    def _length(self, sequence: Expr) -> Expr | None:
        return self.buffers[LENGTHS][sequence] if self.recurrence.lengths else None

    def _unit(self, t: Expr, d: Expr, b: Expr, n: Expr) -> Unit:
        recurrence, hidden, buffers = self.recurrence, self.sizes.hidden, self.buffers
        at = recurrence.step(d, t, self.sizes.steps)

        def load(name: str) -> Expr:
            return buffers["bias"][d, n] if name == "bias" else buffers[f"last_{name}"][d, b, n]

        return Unit(
            projected=lambda gate: buffers["projected"][at, b, (d * recurrence.gates + gate) * hidden + n],
            product=lambda gate: buffers["products"][d, b, gate, n],
            load=load,
            peephole=lambda gate: buffers["peepholes"][d, gate * hidden + n] if recurrence.peepholes else None,
            activate=lambda index, value: recurrence.activate(d, index, T.Bind(value)),
            name=lambda name, value: T.Bind(value),
        )

