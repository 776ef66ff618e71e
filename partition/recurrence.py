"""A recurrent layer (RNN, GRU or LSTM) over whole sequences: the attribute that describes such a PrimFunc, and its
equations.

The frontends write such a PrimFunc as plain loops, which any backend can run. A backend with a template for it reads
the attribute and writes its own loops. Both take the arithmetic of one hidden unit from here.

    projected    [steps, batch, directions * gates * hidden]   inputs times input weights, plus all biases but `bias`
    weights      [directions, gates * hidden, hidden]          recurrent weights
    bias         [directions, hidden]                          only of a GRU with `reset_after`
    peepholes    [directions, 3 * hidden]                      only of an LSTM with peepholes
    lengths      [batch]                                       int32, the steps of each sequence, if they differ
    hidden, cell [directions, batch, hidden]                   initial states; only an LSTM has a cell
    ->
    sequence     [steps, directions, batch, hidden]
    last_hidden, last_cell [directions, batch, hidden]

The gates lie in the order of ONNX: i, o, f, c of an LSTM (its peepholes i, o, f), z, r, h of a GRU.

In the steps beyond its length a sequence keeps its state, and its output is 0; a backward direction visits these steps
first. The last state of a sequence of length 0 is 0, as in ONNX Runtime.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from tvm import tirx

Expr = Any  # a TensorIR expression

RECURRENCE = "fusion.recurrence"
"""Attribute of a PrimFunc that computes a recurrence."""

LENGTHS = "lengths"
"""The name of the only int32 parameter."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _relu(x: Expr) -> Expr:
    zero = tirx.const(0, x.ty.dtype)
    return tirx.Select(x < zero, zero, x)  # NaN stays NaN


ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {"Sigmoid": tirx.sigmoid, "Tanh": tirx.tanh, "Relu": _relu}


@dataclass(frozen=True)
class StepPhase:
    """A part of a step: products with recurrent weights, and the arithmetic of each hidden unit on their results.

    Attributes:
        products: (first gate, number of gates, the state that their weights are multiplied by).
        update: Unit -> its new states, by name.
    """

    products: tuple[tuple[int, int, str], ...]
    update: Callable[[Unit], dict[str, Expr]]


@dataclass(frozen=True)
class Unit:
    """One hidden unit of one sequence at one step.

    Attributes:
        projected, product: Index of a gate -> its contribution from the inputs, and from the recurrent product.
        load: Reads "hidden" or "cell", as the previous step left them, or "bias".
        peephole: Index of a gate -> its peephole weight; None without peepholes.
        activate: (index of the activation, value) -> the activated value.
        name: (name, value) -> the value, bound to a variable so that it is computed once.
    """

    projected: Callable[[int], Expr]
    product: Callable[[int], Expr]
    load: Callable[[str], Expr]
    peephole: Callable[[int], Expr | None]
    activate: Callable[[int, Expr], Expr]
    name: Callable[[str, Expr], Expr]

    def gate(self, index: int) -> Expr:
        """Return the pre-activation of a gate."""
        return self.projected(index) + self.product(index)

    def seeing(self, index: int, cell: Expr) -> Expr:
        """Return the pre-activation of a gate with a peephole to `cell`."""
        weight = self.peephole(index)
        return self.gate(index) if weight is None else self.gate(index) + weight * cell


@dataclass(frozen=True)
class Recurrence:
    """A recurrent layer, apart from its sizes.

    Attributes:
        kind: "RNN", "GRU" or "LSTM".
        backward: For each direction, whether it runs from the last step to the first.
        activations: For each direction the names of its activations, in the order of ONNX.
        reset_after: Whether a GRU applies its reset gate after the recurrent product (ONNX's `linear_before_reset`).
        peepholes: Whether an LSTM has peephole connections.
        constant: Whether the recurrent weights are constants.
        lengths: Whether each sequence has a length of its own.
    """

    kind: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[str, ...], ...]
    reset_after: bool = False
    peepholes: bool = False
    constant: bool = False
    lengths: bool = False

    def attribute(self) -> str:
        """Return the value of the attribute `RECURRENCE`."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def directions(self) -> int:
        return len(self.backward)

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def states(self) -> tuple[str, ...]:
        """The names of the states that a step passes to the next."""
        return ("hidden", "cell") if self.kind == "LSTM" else ("hidden",)

    def parameters(self) -> tuple[str, ...]:
        """Return the names of the PrimFunc's parameters, in order, outputs last."""
        extra = (["bias"] if self.reset_after else []) + (["peepholes"] if self.peepholes else [])
        extra += [LENGTHS] if self.lengths else []
        last = [f"last_{state}" for state in self.states]
        return ("projected", "weights", *extra, *self.states, "sequence", *last)

    def phases(self) -> tuple[StepPhase, ...]:
        """Return the phases of a step; each needs the results of all units of the one before."""
        if self.kind == "RNN":
            return (StepPhase(((0, 1, "hidden"),), _rnn),)
        if self.kind == "LSTM":
            return (StepPhase(((0, 4, "hidden"),), _lstm),)
        if self.reset_after:
            return (StepPhase(((0, 3, "hidden"),), _gru_reset_after),)
        return StepPhase(((1, 1, "hidden"),), _gru_reset), StepPhase(((0, 1, "hidden"), (2, 1, "reset")), _gru)

    def activate(self, direction: Expr, index: int, value: Expr) -> Expr:
        """Return `value` under the activation at `index` of a direction, which may be an expression."""
        made = [ACTIVATIONS[names[index]] for names in self.activations]
        if len(made) == 1 or made[0] is made[1]:
            return made[0](value)
        return tirx.Select(direction < 1, made[0](value), made[1](value))

    def first(self, state: Expr, length: Expr | None) -> Expr:
        """Return the initial state of a sequence: `state`, or 0 if its `length` is 0; None is the length of all
        steps."""
        return state if length is None else tirx.Select(length > 0, state, tirx.const(0, state.ty.dtype))

    def kept(self, made: Mapping[str, Expr], load: Callable[[str], Expr], is_within: Expr | None) -> dict[str, Expr]:
        """Return what a unit stores after a step, by name: the states that it `made`, and "sequence" with its output.

        Args:
            is_within: Whether the step is within the sequence, which otherwise keeps its old state and outputs 0; None
                if all steps are.
        """
        found = dict(made)
        if is_within is not None:
            found |= {name: tirx.Select(is_within, made[name], load(name)) for name in self.states if name in made}
        if "hidden" in made:
            zero = tirx.const(0, made["hidden"].ty.dtype)
            found["sequence"] = made["hidden"] if is_within is None else tirx.Select(is_within, made["hidden"], zero)
        return found

    def step(self, direction: Expr, index: Expr, steps: int) -> Expr:
        """Return the step of the sequence that a direction visits at its `index`-th step."""
        last = steps - 1 - index
        if all(self.backward):
            return last
        return tirx.Select(direction < 1, index, last) if any(self.backward) else index


def recurrence_of(func: tirx.PrimFunc) -> Recurrence | None:
    """Return the recurrence that `func` computes; None if it computes something else."""
    text = func.attrs.get(RECURRENCE) if func.attrs else None
    if text is None:
        return None
    fields = json.loads(str(text))
    activations = tuple(map(tuple, fields.pop("activations")))
    return Recurrence(backward=tuple(fields.pop("backward")), activations=activations, **fields)


def _rnn(unit: Unit) -> dict[str, Expr]:
    return {"hidden": unit.activate(0, unit.gate(0))}


def _lstm(unit: Unit) -> dict[str, Expr]:
    old = unit.name("old", unit.load("cell"))
    enter = unit.activate(0, unit.seeing(0, old))
    forget = unit.activate(0, unit.seeing(2, old))
    cell = unit.name("new", forget * old + enter * unit.activate(1, unit.gate(3)))
    leave = unit.activate(0, unit.seeing(1, cell))
    return {"cell": cell, "hidden": leave * unit.activate(2, cell)}


def _gru_reset(unit: Unit) -> dict[str, Expr]:
    return {"reset": unit.activate(0, unit.gate(1)) * unit.load("hidden")}


def _gru(unit: Unit) -> dict[str, Expr]:
    return {"hidden": _mixed(unit, unit.gate(2))}


def _gru_reset_after(unit: Unit) -> dict[str, Expr]:
    reset = unit.activate(0, unit.gate(1))
    return {"hidden": _mixed(unit, unit.projected(2) + reset * (unit.product(2) + unit.load("bias")))}


def _mixed(unit: Unit, candidate: Expr) -> Expr:
    """Return the new state of a GRU: (1 - z) * g(candidate) + z * hidden."""
    update = unit.name("update", unit.activate(0, unit.gate(0)))
    return (1 - update) * unit.activate(1, candidate) + update * unit.load("hidden")
