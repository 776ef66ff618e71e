"""Operators on signals, which ONNX Runtime computes."""

from __future__ import annotations

import numpy as np
from tvm.relax import Expr

from fusion.frontends.onnx.node import Decline, Node
from fusion.frontends.onnx.registry import converts
from fusion.guards import Bounds, Guard, check

_FRAME_LENGTH = 3


@converts("STFT")
def stft(node: Node) -> Expr:
    """ONNX Runtime ends the process where a frame has no element: the length of one, if it is data, is checked before.

    Raises:
        Decline: Always.
    """
    if node.has(_FRAME_LENGTH) and not node.is_const(_FRAME_LENGTH):
        most = int(np.iinfo(node.dtype(_FRAME_LENGTH)).max)
        what, why = "a frame has no element", "frame_length is {value}, and must be 1 or more"
        guard = Guard("length", what, node.where, (why,), (Bounds(1, most),))
        checked = node.emit(check(node.builder, node.x(_FRAME_LENGTH), guard))
        node.scope.exprs[node.proto.input[_FRAME_LENGTH]] = checked
    raise Decline("ONNX Runtime computes it")
