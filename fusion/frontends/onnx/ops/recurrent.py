"""RNN, GRU and LSTM: one product for the inputs of all steps, and one kernel for what has to wait for the step
before."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import Expr

from fusion.declined import Declined
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.registry import converts
from fusion.frontends.recurrence import RecurrenceSizes, call_recurrence
from fusion.guards.check import check
from fusion.guards.kinds import length_guard
from partition.recurrence import ACTIVATIONS, GATES, Recurrence

_DEFAULTS = {"RNN": ("Tanh",), "GRU": ("Sigmoid", "Tanh"), "LSTM": ("Sigmoid", "Tanh", "Tanh")}
_WEIGHTS, _BIAS, _LENGTHS, _HIDDEN, _CELL, _PEEPHOLES = 2, 3, 4, 5, 6, 7


@converts("RNN", "GRU", "LSTM")
def recurrent(node: Node) -> list[Expr]:
    """X [steps, batch, input] -> Y [steps, directions, batch, hidden], Y_h and, of an LSTM, Y_c [directions, batch,
    hidden]; float16 is computed in float32, as in ONNX Runtime: what a step rounds, all later ones read."""
    batch_first = bool(node.attr("layout", 0))
    _refuse(node)
    x = relax.op.permute_dims(_x(node, 0), [1, 0, 2]) if batch_first else _x(node, 0)
    outer = node.shape(0)[:2]
    steps, batch = reversed(outer) if batch_first else outer
    recurrence, sizes = _described(node), RecurrenceSizes(steps, batch, int(node.shape(_WEIGHTS)[2]))
    operands = [_projected(node, x, recurrence), *_weights(node, recurrence)]
    operands += [_lengths(node, steps)] if recurrence.lengths else []
    operands += [_initial(node, at, recurrence, sizes) for at in (_HIDDEN, _CELL)[: len(recurrence.states)]]
    results = call_recurrence(node.builder, recurrence, sizes, operands, _dtype(node))
    if _dtype(node) != node.dtype(0):
        results = [node.emit(relax.op.astype(result, node.dtype(0))) for result in results]
    if not batch_first:
        return results
    return [
        relax.op.permute_dims(results[0], [2, 0, 1, 3]),
        *(relax.op.permute_dims(state, [1, 0, 2]) for state in results[1:]),
    ]


def _dtype(node: Node) -> str:
    return "float32" if node.dtype(0) in ("float16", "bfloat16") else node.dtype(0)


def _x(node: Node, index: int) -> Expr:
    """Return an input as it is computed with. Constants stay constants, whose kernel packs them: no pass casts those
    of bfloat16."""
    if _dtype(node) == node.dtype(index):
        return node.x(index)
    if node.is_const(index):
        return relax.const(node.needed_const(index).astype(_dtype(node)))
    return node.emit(relax.op.astype(node.x(index), _dtype(node)))


def _refuse(node: Node) -> None:
    if 0 in node.shape(0) or 0 in node.shape(_WEIGHTS):
        raise Declined("a tensor without elements")
    if node.attr("clip") is not None or node.attr("activation_alpha") or node.attr("activation_beta"):
        raise Declined("clipped or parametrized activations")
    if node.attr("input_forget", 0):
        raise Declined("coupled input and forget gates")


def _described(node: Node) -> Recurrence:
    directions, count = node.shape(1)[0], len(_DEFAULTS[node.op])
    names = tuple(node.attr("activations") or _DEFAULTS[node.op] * directions)
    unknown = [name for name in names if name not in ACTIVATIONS]
    if unknown:
        raise Declined(f"activations {', '.join(unknown)}")
    backward = (False, True) if directions > 1 else (node.attr("direction", "forward") == "reverse",)
    return Recurrence(
        node.op,
        backward,
        tuple(names[index * count : (index + 1) * count] for index in range(directions)),
        reset_after=node.op == "GRU" and bool(node.attr("linear_before_reset", 0)),
        peepholes=node.op == "LSTM" and node.has(_PEEPHOLES),
        constant=node.is_const(_WEIGHTS),
        lengths=node.has(_LENGTHS) and not _has_all_steps(node),
    )


def _has_all_steps(node: Node) -> bool:
    """Return whether it is known that each sequence has all steps that there are."""
    steps = node.shape(0)[1 if node.attr("layout", 0) else 0]
    return node.is_const(_LENGTHS) and bool(np.all(node.needed_const(_LENGTHS) == steps))


def _lengths(node: Node, steps: int) -> Expr:
    """Return how many steps each sequence has, which the run checks."""
    return node.emit(check(node.builder, node.x(_LENGTHS), length_guard(node.where, 0, steps)))


def _projected(node: Node, x: Expr, recurrence: Recurrence) -> Expr:
    """Return the inputs of all steps times the weights of all directions, and the biases that are simply added."""
    width, size = (int(extent) for extent in (recurrence.directions * node.shape(1)[1], node.shape(1)[2]))
    weights = node.emit(relax.op.permute_dims(node.emit(relax.op.reshape(_x(node, 1), (width, size))), [1, 0]))
    product = node.emit(relax.op.matmul(x, weights))
    return node.emit(relax.op.add(product, _bias(node, recurrence))) if node.has(_BIAS) else product


def _bias(node: Node, recurrence: Recurrence) -> Expr:
    """Return what is added to the product: the biases of inputs and state, but for that of the candidate of a GRU whose
    reset gate is applied to it."""
    hidden = int(node.shape(_WEIGHTS)[2])
    width = GATES[node.op] * hidden
    of_input, of_state = _part(node, 0, width), _part(node, width, 2 * width)
    if recurrence.reset_after:
        kept = np.arange(width) < 2 * hidden
        of_state = node.emit(relax.op.multiply(of_state, relax.const(kept.astype(_dtype(node)))))
    return node.emit(relax.op.reshape(node.emit(relax.op.add(of_input, of_state)), (recurrence.directions * width,)))


def _part(node: Node, start: int, end: int) -> Expr:
    return node.emit(relax.op.strided_slice(_x(node, _BIAS), [1], [start], [end]))


def _weights(node: Node, recurrence: Recurrence) -> list[Expr]:
    """Return the weights of the state, the bias that the reset gate is applied to, and the peepholes."""
    hidden, found = int(node.shape(_WEIGHTS)[2]), [_x(node, _WEIGHTS)]
    if recurrence.reset_after:
        last, zeros = 6 * hidden, _zeros(node, recurrence.directions, hidden)
        found.append(_part(node, last - hidden, last) if node.has(_BIAS) else zeros)
    return [*found, _x(node, _PEEPHOLES)] if recurrence.peepholes else found


def _initial(node: Node, at: int, recurrence: Recurrence, sizes: RecurrenceSizes) -> Expr:
    if not node.has(at):
        return _zeros(node, recurrence.directions, sizes.batch, sizes.hidden)
    return node.emit(relax.op.permute_dims(_x(node, at), [1, 0, 2])) if node.attr("layout", 0) else _x(node, at)


def _zeros(node: Node, *shape: int) -> Expr:
    return relax.const(np.zeros(shape, _dtype(node)), _dtype(node))
