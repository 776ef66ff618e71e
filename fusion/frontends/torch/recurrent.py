"""LSTM, GRU and RNN of torch: for each layer one product for the inputs of all steps, and one kernel for what has to
wait for the step before. torch's own decompositions write each step out.

    output [steps, batch, directions * hidden], last states [layers * directions, batch, hidden]

torch has the gates in another order than `partition.recurrence`: i, f, c, o of an LSTM and r, z, n of a GRU.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import fx
from tvm import relax
from tvm.ir import GenericConst
from tvm.relax import Expr

from fusion.constants import constant
from fusion.frontends.recurrence import RecurrenceSizes, call_recurrence
from fusion.frontends.torch.operands import HALVES, Converter, cast, operands
from fusion.tensors import as_numpy
from partition.recurrence import Recurrence

aten = torch.ops.aten


@dataclass(frozen=True)
class _Kind:
    """A kind of layer.

    Attributes:
        name: Its kind of `Recurrence`.
        activations: Those of a direction.
        gates: torch's place of each gate of a `Recurrence`.
        reset_after: As in `Recurrence`.
    """

    name: str
    activations: tuple[str, ...]
    gates: tuple[int, ...]
    reset_after: bool = False

    @property
    def has_cell(self) -> bool:
        """Whether a step passes on a cell beside the hidden state."""
        return self.name == "LSTM"


_KINDS = {
    aten.lstm.input: _Kind("LSTM", ("Sigmoid", "Tanh", "Tanh"), (0, 3, 1, 2)),
    aten.gru.input: _Kind("GRU", ("Sigmoid", "Tanh"), (1, 0, 2), reset_after=True),
    aten.rnn_tanh.input: _Kind("RNN", ("Tanh",), (0,)),
    aten.rnn_relu.input: _Kind("RNN", ("Relu",), (0,)),
}


def written_out(others: Callable[..., Any]) -> Callable[..., Any]:
    """Return the decomposition of layers that are none of a `Recurrence`, by `others`: those of projected states and of
    tensors without elements."""

    def rule(
        x: Any, states: Any, weights: Sequence[Any], biased: bool, layers: int, dropout: float, train: bool,
        bidirectional: bool, batch_first: bool,
    ) -> Any:  # fmt: skip
        is_plain = len(weights) == layers * (1 + bidirectional) * (2 + 2 * biased)
        if is_plain and x.numel() and all(weight.numel() for weight in weights):
            return NotImplemented
        return others(x, states, weights, biased, layers, dropout, train, bidirectional, batch_first)

    return rule


OPERATORS = tuple(_KINDS)


def drops_out(node: fx.Node) -> bool:
    """Return whether layers drop out between them, which torch's own decompositions leave out."""
    *_, layers, dropout, train, _, _ = node.args
    return bool(train and dropout and layers > 1)


def _convert(kind: _Kind, node: fx.Node, importer: Any) -> tuple[Expr, ...]:
    """Layer upon layer; 16 bits are computed in float32, as what a step rounds, all later ones read."""
    given, emit = operands(node, importer), importer.block_builder.emit
    x, dtype = given["input"], str(given["input"].ty.dtype)
    wide = "float32" if dtype in HALVES else dtype
    directions = 1 + given["bidirectional"]
    first = given["hx"] if kind.has_cell else [given["hx"]]
    x, first = cast(emit, x, wide), [cast(emit, state, wide) for state in first]
    if given["batch_first"]:
        x = emit(relax.op.permute_dims(x, [1, 0, 2]))
    _, _, params, *_ = node.args
    weights = [importer.constant_of(each) or value for each, value in zip(params, given["params"], strict=True)]
    weights, size = [cast(emit, each, wide) for each in weights], 2 + 2 * given["has_biases"]
    parts = [weights[at : at + size] for at in range(0, len(weights), size)]
    last: list[list[Expr]] = [[] for _ in first]
    for begin in range(0, len(parts), directions):
        end = begin + directions
        layer = _Layer(kind, importer.block_builder, parts[begin:end])
        states = [emit(relax.op.strided_slice(state, [0], [begin], [end])) for state in first]
        x, *made = layer.run(x, states)
        for found, state in zip(last, made, strict=True):
            found.append(state)
    if given["batch_first"]:
        x = emit(relax.op.permute_dims(x, [1, 0, 2]))
    joined = (found[0] if len(found) == 1 else emit(relax.op.concat(found, axis=0)) for found in last)
    return tuple(cast(emit, result, dtype) for result in (x, *joined))


@dataclass(frozen=True)
class _Layer:
    """A layer in one direction or two.

    Attributes:
        parts: Of each direction the weights of inputs and of states, [gates * hidden, ...], and, if it has them, the
            biases of both.
    """

    kind: _Kind
    builder: relax.BlockBuilder
    parts: Sequence[Sequence[Expr]]

    def run(self, x: Expr, states: Sequence[Expr]) -> list[Expr]:
        """Return what it makes of [steps, batch, ...]: [steps, batch, directions * hidden] and the last states."""
        emit, kind, directions = self.builder.emit, self.kind, len(self.parts)
        steps, batch, _ = x.ty.shape
        hidden = int(self.parts[0][1].ty.shape[1])
        weights = self._gates(1)
        recurrence = Recurrence(
            kind.name, (False, True)[:directions], (kind.activations,) * directions, reset_after=kind.reset_after,
            constant=isinstance(weights, GenericConst),
        )  # fmt: skip
        sizes = RecurrenceSizes(int(steps), int(batch), hidden)
        bias = [self._bias(hidden)] if kind.reset_after else []
        given = [self._projected(x, hidden), weights, *bias, *states]
        sequence, *last = call_recurrence(self.builder, recurrence, sizes, given, str(x.ty.dtype))
        rows = emit(relax.op.permute_dims(sequence, [0, 2, 1, 3]))
        return [emit(relax.op.reshape(rows, (steps, batch, directions * hidden))), *last]

    def _projected(self, x: Expr, hidden: int) -> Expr:
        """Return the inputs of all steps times the weights of all directions, and the biases that are simply added."""
        emit, weights = self.builder.emit, self._gates(0)
        width = len(self.parts) * len(self.kind.gates) * hidden
        columns = emit(relax.op.permute_dims(emit(relax.op.reshape(weights, (width, -1))), [1, 0]))
        product = emit(relax.op.matmul(x, columns))
        if len(self.parts[0]) == 2:
            return product
        of_input, of_state = self._gates(2), self._gates(3)
        if self.kind.reset_after:
            kept = np.arange(len(self.kind.gates) * hidden) < (len(self.kind.gates) - 1) * hidden
            of_state = emit(relax.op.multiply(of_state, constant(kept.astype(str(x.ty.dtype)))))
        return emit(relax.op.add(product, emit(relax.op.reshape(emit(relax.op.add(of_input, of_state)), (width,)))))

    def _bias(self, hidden: int) -> Expr:
        """Return the bias that the reset gate is applied to: that of the states' last gate, [directions, hidden]."""
        dtype = str(self.parts[0][1].ty.dtype)
        if len(self.parts[0]) == 2:
            return constant(np.zeros((len(self.parts), hidden), dtype))
        width = len(self.kind.gates) * hidden
        return self.builder.emit(relax.op.strided_slice(self._gates(3), [1], [width - hidden], [width]))

    def _gates(self, place: int) -> Expr:
        """Return a part of all directions, [directions, gates * hidden, ...], with the gates in order."""
        each = [part[place] for part in self.parts]
        if all(isinstance(value, GenericConst) for value in each):
            return constant(np.stack([self._in_order(as_numpy(value.value)) for value in each]))
        emit, size = self.builder.emit, int(each[0].ty.shape[0]) // len(self.kind.gates)
        ordered = [
            emit(relax.op.concat([self._gate(value, gate * size, size) for gate in self.kind.gates], axis=0))
            for value in each
        ]
        return emit(relax.op.stack(ordered, axis=0))

    def _gate(self, value: Expr, begin: int, size: int) -> Expr:
        return self.builder.emit(relax.op.strided_slice(value, [0], [begin], [begin + size]))

    def _in_order(self, array: Any) -> Any:
        gates = array.reshape(len(self.kind.gates), -1, *array.shape[1:])
        return gates[list(self.kind.gates)].reshape(array.shape)


CONVERTERS: dict[str, Converter] = {
    operator.__name__: partial(_convert, kind) for operator, kind in _KINDS.items()
}
