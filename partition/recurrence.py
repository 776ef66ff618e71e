"""A recurrent network over a whole sequence: what a PrimFunc says of itself that computes one, and its equations.

The frontends write such a PrimFunc as plain loops that any backend can run; a backend with a template for it reads the
description and writes loops of its own. Both take the arithmetic of one hidden unit from here.

    projected    [steps, batch, directions * gates * hidden]   inputs times weights, with all biases but `bias`
    weights      [directions, gates * hidden, hidden]          of the hidden state
    bias         [directions, hidden]                          of a GRU whose reset gate comes after the product
    peepholes    [directions, 3 * hidden]                      of an LSTM that has them
    lengths      [batch]                                       steps of each sequence, int32, where they differ
    hidden, cell [directions, batch, hidden]                   initial states; only an LSTM has cells
    ->
    sequence     [steps, directions, batch, hidden]
    last_hidden, last_cell [directions, batch, hidden]

The gates lie in the order of ONNX: i, o, f, c of an LSTM (its peepholes i, o, f), z, r, h of a GRU.

A sequence keeps its state in the steps behind its own, which come first in a direction that goes back from the last
one, and is 0 there. The last state of a sequence without steps is 0, as in ONNX Runtime.
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
"""The parameter that is of int32."""

GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}


def _relu(x: Expr) -> Expr:
    zero = tirx.const(0, x.ty.dtype)
    return tirx.Select(x < zero, zero, x)  # NaN stays NaN


ACTIVATIONS: Mapping[str, Callable[[Expr], Expr]] = {"Sigmoid": tirx.sigmoid, "Tanh": tirx.tanh, "Relu": _relu}


@dataclass(frozen=True)
class StepPhase:
    """A part of a step: products of the recurrent weights, and what each hidden unit makes of them.

    Attributes:
        products: (first gate, how many, the state that their weights are multiplied with).
        update: The new states of a unit, by name.
    """

    products: tuple[tuple[int, int, str], ...]
    update: Callable[[Unit], dict[str, Expr]]


@dataclass(frozen=True)
class Unit:
    """One hidden unit of one sequence at one step.

    Attributes:
        projected, product: A gate's number -> its share from the inputs, and from the state.
        load: Reads "hidden", "cell" (as the step before left them) or "bias".
        peephole: A gate's number -> its weight of the cell; None where there is none.
        activate: (which activation, value) -> its result.
        name: Computes a value once.
    """

    projected: Callable[[int], Expr]
    product: Callable[[int], Expr]
    load: Callable[[str], Expr]
    peephole: Callable[[int], Expr | None]
    activate: Callable[[int, Expr], Expr]
    name: Callable[[str, Expr], Expr]

    def gate(self, index: int) -> Expr:
        """Return what goes into a gate."""
        return self.projected(index) + self.product(index)

    def seeing(self, index: int, cell: Expr) -> Expr:
        """Return what goes into a gate that has a peephole to `cell`."""
        weight = self.peephole(index)
        return self.gate(index) if weight is None else self.gate(index) + weight * cell


@dataclass(frozen=True)
class Recurrence:
    """What is computed, apart from sizes.

    Attributes:
        kind: "RNN", "GRU" or "LSTM".
        backward: For each direction, whether it goes from the last step to the first.
        activations: For each direction, the names in the order of ONNX.
        reset_after: Whether the reset gate of a GRU is applied after the product (`linear_before_reset`).
        peepholes: Whether the gates of an LSTM see the cell.
        constant: Whether the weights are known before the run.
        lengths: Whether sequences have numbers of steps of their own.
    """

    kind: str
    backward: tuple[bool, ...]
    activations: tuple[tuple[str, ...], ...]
    reset_after: bool = False
    peepholes: bool = False
    constant: bool = False
    lengths: bool = False

    def attribute(self) -> str:
        """Return the description as the value of a PrimFunc's attribute."""
        return json.dumps(asdict(self), sort_keys=True)

    @property
    def directions(self) -> int:
        return len(self.backward)

    @property
    def gates(self) -> int:
        return GATES[self.kind]

    @property
    def states(self) -> tuple[str, ...]:
        """The names of what a step hands to the next one."""
        return ("hidden", "cell") if self.kind == "LSTM" else ("hidden",)

    def parameters(self) -> tuple[str, ...]:
        """Return the names of the PrimFunc's parameters in order, results last."""
        extra = (["bias"] if self.reset_after else []) + (["peepholes"] if self.peepholes else [])
        extra += [LENGTHS] if self.lengths else []
        last = [f"last_{state}" for state in self.states]
        return ("projected", "weights", *extra, *self.states, "sequence", *last)

    def phases(self) -> tuple[StepPhase, ...]:
        """Return the parts of a step; each needs the states of all units that the one before it made."""
        if self.kind == "RNN":
            return (StepPhase(((0, 1, "hidden"),), _rnn),)
        if self.kind == "LSTM":
            return (StepPhase(((0, 4, "hidden"),), _lstm),)
        if self.reset_after:
            return (StepPhase(((0, 3, "hidden"),), _gru_reset_after),)
        return StepPhase(((1, 1, "hidden"),), _gru_reset), StepPhase(((0, 1, "hidden"), (2, 1, "reset")), _gru)

    def activate(self, direction: Expr, index: int, value: Expr) -> Expr:
        """Return an activation of a direction, which may be an expression."""
        made = [ACTIVATIONS[names[index]] for names in self.activations]
        if len(made) == 1 or made[0] is made[1]:
            return made[0](value)
        return tirx.Select(direction < 1, made[0](value), made[1](value))

    def first(self, state: Expr, length: Expr | None) -> Expr:
        """Return what a sequence of so many steps, None where it has all, begins with in place of a `state`."""
        return state if length is None else tirx.Select(length > 0, state, tirx.const(0, state.ty.dtype))

    def kept(self, made: Mapping[str, Expr], load: Callable[[str], Expr], is_within: Expr | None) -> dict[str, Expr]:
        """Return what a unit stores after a step, by name, "sequence" beside the states that it has `made`: those that
        there are where the step is not within the sequence. None where each is."""
        found = dict(made)
        if is_within is not None:
            found |= {name: tirx.Select(is_within, made[name], load(name)) for name in self.states if name in made}
        if "hidden" in made:
            zero = tirx.const(0, made["hidden"].ty.dtype)
            found["sequence"] = made["hidden"] if is_within is None else tirx.Select(is_within, made["hidden"], zero)
        return found

    def step(self, direction: Expr, index: Expr, steps: int) -> Expr:
        """Return which step of the sequence the `index`-th one of a direction is."""
        last = steps - 1 - index
        if all(self.backward):
            return last
        return tirx.Select(direction < 1, index, last) if any(self.backward) else index


def recurrence_of(func: tirx.PrimFunc) -> Recurrence | None:
    """Return the recurrence that `func` computes; None where it computes something else."""
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
