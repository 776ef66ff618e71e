"""Operands that the run checks before ONNX Runtime, or ONNX's own function of the operator, reads them: a table."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from onnx import NodeProto

from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.types import NATIVE_DTYPES, known_dims
from fusion.guards.check import check
from fusion.guards.conditions import Bounds
from fusion.guards.kinds import Guard, index_guard


class _Checked(NamedTuple):
    """An operand: its position, and what must hold of it; None where too little is known of the node."""

    at: int
    guard: Callable[[Node], Guard | None]


def _angle_positions(node: Node) -> Guard | None:
    """ONNX's function would read angles at negative positions from the end."""
    angles = known_dims(node.scope.types.get(node.proto.input[1]))
    return None if angles is None else index_guard(node.where, [0], angles, negative=False)


def _frame_length(node: Node) -> Guard:
    """ONNX Runtime ends the process where a frame has no element."""
    most = int(np.iinfo(node.dtype(_CHECKED["STFT"].at)).max)
    what, why = "a frame has no element", "frame_length is {value}, and must be 1 or more"
    return Guard("length", what, node.where, (why,), (Bounds(1, most),))


def _window_size(node: Node) -> Guard:
    """ONNX's function would make an empty window of a negative size."""
    most = int(np.iinfo(node.dtype(0)).max)
    return Guard("size", "a window has a negative size", node.where, ("it is {value}",), (Bounds(0, most),))


_CHECKED = {
    **dict.fromkeys(("BlackmanWindow", "HammingWindow", "HannWindow"), _Checked(0, _window_size)),
    "RotaryEmbedding": _Checked(3, _angle_positions),
    "STFT": _Checked(3, _frame_length),
}


def has_checked_operand(node: NodeProto) -> bool:
    """Return whether there is one that `check_operand` looks at."""
    return not node.domain and node.op_type in _CHECKED and len(node.input) > _CHECKED[node.op_type].at


def check_operand(node: Node) -> None:
    """Put the checked operand of `node` in the place of that operand, unless it is constant."""
    if not has_checked_operand(node.proto) or node.is_const(_CHECKED[node.op].at):
        return
    at, find = _CHECKED[node.op]
    kind = node.scope.types.get(node.proto.input[at])
    if kind is None or known_dims(kind) is None or kind.tensor_type.elem_type not in NATIVE_DTYPES:
        return
    guard = find(node)
    if guard is not None:
        node.scope.exprs[node.proto.input[at]] = node.emit(check(node.builder, node.x(at), guard))
