"""RNN, GRU and LSTM, unrolled over the sequence, whose length is static here."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.registry import converts

_GATES = {"RNN": 1, "GRU": 3, "LSTM": 4}
_DEFAULTS = {"RNN": ["Tanh"], "GRU": ["Sigmoid", "Tanh"], "LSTM": ["Sigmoid", "Tanh", "Tanh"]}
_FUNCTIONS: dict[str, Callable[[Expr], Expr]] = {
    "Sigmoid": relax.op.sigmoid,
    "Tanh": relax.op.tanh,
    "Relu": relax.op.nn.relu,
}
# Beyond this, the unrolled program would be larger than the loop is worth.
_MAX_STEPS = 256


@dataclass(frozen=True)
class _Direction:
    """Weights of one direction, ready to multiply from the right: [input, gates * hidden] and [hidden, gates *
    hidden]."""

    input_weights: Expr
    hidden_weights: Expr
    input_bias: Expr
    hidden_bias: Expr
    peepholes: Expr | None
    functions: list[Callable[[Expr], Expr]]


@converts("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> list[Expr]:
    """X [steps, batch, input] -> Y [steps, directions, batch, hidden], Y_h and, of an LSTM, Y_c [directions, batch,
    hidden]."""
    _refuse(node)
    batch_first = bool(node.attr("layout", 0))
    x = relax.op.permute_dims(node.x(0), [1, 0, 2]) if batch_first else node.x(0)
    shape = node.shape(0)
    steps, batch = (shape[1], shape[0]) if batch_first else (shape[0], shape[1])
    directions = node.shape(1)[0]
    runs = [_run(node, node.emit(x), index, steps, batch) for index in range(directions)]
    return _outputs(node, runs, batch_first)


def _refuse(node: Node) -> None:
    steps = node.shape(0)[1 if node.attr("layout", 0) else 0]
    lengths = node.const(4)
    if lengths is not None and np.any(lengths != steps):
        raise Decline("sequences of different lengths")
    if steps > _MAX_STEPS or steps == 0:
        raise Decline(f"{steps} steps")
    if node.attr("clip") is not None or node.attr("activation_alpha") or node.attr("activation_beta"):
        raise Decline("clipped or parametrized activations")
    if node.attr("input_forget", 0):
        raise Decline("coupled input and forget gates")


def _direction(node: Node, index: int) -> _Direction:
    hidden = int(node.shape(2)[2])
    width = _GATES[node.op] * hidden

    def pick(at: int) -> Expr:
        return relax.op.take(node.x(at), relax.const(index, "int64"), 0)

    if node.has(3):
        bias = node.emit(pick(3))
        halves = [relax.op.strided_slice(bias, [0], [start], [start + width]) for start in (0, width)]
    else:
        halves = [relax.const(np.zeros(width, dtype=node.dtype(0)), node.dtype(0))] * 2
    names = node.attr("activations") or _DEFAULTS[node.op] * node.shape(1)[0]
    count = len(_DEFAULTS[node.op])
    chosen = names[index * count : (index + 1) * count]
    if any(name not in _FUNCTIONS for name in chosen):
        raise Decline(f"activations {', '.join(chosen)}")
    return _Direction(
        node.emit(relax.op.permute_dims(pick(1), [1, 0])),
        node.emit(relax.op.permute_dims(pick(2), [1, 0])),
        node.emit(halves[0]) if node.has(3) else halves[0],
        node.emit(halves[1]) if node.has(3) else halves[1],
        node.emit(pick(7)) if node.op == "LSTM" and node.has(7) else None,
        [_FUNCTIONS[name] for name in chosen],
    )


def _run(node: Node, x: Expr, index: int, steps: int, batch: int) -> tuple[list[Expr], Expr, Expr | None]:
    """Return the hidden state after each step in the order of the input, the last one, and the last cell."""
    weights = _direction(node, index)
    backward = node.attr("direction", "forward") == "reverse" or index == 1
    # One product for the whole sequence; only the recurrent part has to wait for the step before.
    projected = node.emit(relax.op.add(relax.op.matmul(x, weights.input_weights), weights.input_bias))
    hidden, cell = _initial(node, 5, index, batch), _initial(node, 6, index, batch) if node.op == "LSTM" else None
    outputs: list[Expr] = [hidden] * steps
    for step in reversed(range(steps)) if backward else range(steps):
        gates = node.emit(relax.op.take(projected, relax.const(step, "int64"), 0))
        hidden, cell = _STEPS[node.op](node, gates, hidden, cell, weights)
        outputs[step] = hidden
    return outputs, hidden, cell


def _initial(node: Node, at: int, index: int, batch: int) -> Expr:
    size = int(node.shape(2)[2])
    if not node.has(at):
        return relax.const(np.zeros((batch, size), dtype=node.dtype(0)), node.dtype(0))
    axis = 1 if node.attr("layout", 0) else 0
    return node.emit(relax.op.take(node.x(at), relax.const(index, "int64"), axis))


def _rnn_step(node: Node, gates: Expr, hidden: Expr, cell: Expr | None, w: _Direction) -> tuple[Expr, Expr | None]:
    total = relax.op.add(relax.op.add(gates, relax.op.matmul(hidden, w.hidden_weights)), w.hidden_bias)
    return node.emit(w.functions[0](total)), cell


def _gru_step(node: Node, gates: Expr, hidden: Expr, cell: Expr | None, w: _Direction) -> tuple[Expr, Expr | None]:
    """z, r and h are the gates, in this order."""
    size = int(node.shape(2)[2])

    def part(tensor: Expr, gate: int) -> Expr:
        return relax.op.strided_slice(tensor, [-1], [gate * size], [(gate + 1) * size])

    if node.attr("linear_before_reset", 0):
        recurrent_part = node.emit(relax.op.add(relax.op.matmul(hidden, w.hidden_weights), w.hidden_bias))
        reset = w.functions[0](relax.op.add(part(gates, 1), part(recurrent_part, 1)))
        update = node.emit(w.functions[0](relax.op.add(part(gates, 0), part(recurrent_part, 0))))
        candidate = relax.op.add(part(gates, 2), relax.op.multiply(reset, part(recurrent_part, 2)))
    else:
        gates = node.emit(relax.op.add(gates, w.hidden_bias))
        early = node.emit(relax.op.matmul(hidden, relax.op.strided_slice(w.hidden_weights, [1], [0], [2 * size])))
        reset = w.functions[0](relax.op.add(part(gates, 1), part(early, 1)))
        update = node.emit(w.functions[0](relax.op.add(part(gates, 0), part(early, 0))))
        late = relax.op.matmul(relax.op.multiply(reset, hidden), part(w.hidden_weights, 2))
        candidate = relax.op.add(part(gates, 2), late)
    fresh = node.emit(w.functions[1](candidate))
    mixed = relax.op.add(
        relax.op.multiply(relax.op.subtract(node.like(1.0), update), fresh), relax.op.multiply(update, hidden)
    )
    return node.emit(mixed), cell


def _lstm_step(node: Node, gates: Expr, hidden: Expr, cell: Expr | None, w: _Direction) -> tuple[Expr, Expr | None]:
    """i, o, f and c are the gates, in this order; peepholes come as i, o, f."""
    assert cell is not None
    size = int(node.shape(2)[2])
    total = node.emit(relax.op.add(relax.op.add(gates, relax.op.matmul(hidden, w.hidden_weights)), w.hidden_bias))

    def part(gate: int) -> Expr:
        return relax.op.strided_slice(total, [-1], [gate * size], [(gate + 1) * size])

    def peep(gate: int, state: Expr) -> Expr:
        if w.peepholes is None:
            return part(gate)
        weight = relax.op.strided_slice(w.peepholes, [0], [gate * size], [(gate + 1) * size])
        return relax.op.add(part(gate), relax.op.multiply(weight, state))

    let_in, forget = w.functions[0](peep(0, cell)), w.functions[0](peep(2, cell))
    new = node.emit(relax.op.add(relax.op.multiply(forget, cell), relax.op.multiply(let_in, w.functions[1](part(3)))))
    return node.emit(relax.op.multiply(w.functions[0](peep(1, new)), w.functions[2](new))), new


_STEPS = {"RNN": _rnn_step, "GRU": _gru_step, "LSTM": _lstm_step}


def _outputs(node: Node, runs: list[tuple[list[Expr], Expr, Expr | None]], batch_first: bool) -> list[Expr]:
    sequences = [relax.op.stack(outputs, 0) for outputs, _, _ in runs]
    y = relax.op.stack(sequences, 1)
    last = relax.op.stack([hidden for _, hidden, _ in runs], 0)
    cells = [relax.op.stack([cell for _, _, cell in runs], 0)] if node.op == "LSTM" else []
    if not batch_first:
        return [y, last, *cells]
    return [
        relax.op.permute_dims(y, [2, 0, 1, 3]),
        *(relax.op.permute_dims(state, [1, 0, 2]) for state in (last, *cells)),
    ]
