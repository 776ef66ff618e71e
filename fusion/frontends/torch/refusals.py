"""What users are told of a node of a program that cannot be compiled."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import fx

from fusion.errors import UnsupportedOperatorError
from fusion.frontends.torch.program import TO_ONNX


def unsupported(node: fx.Node, why: str, hint: str = TO_ONNX) -> UnsupportedOperatorError:
    """Return the error that names the operator of `node`, and its place."""
    return UnsupportedOperatorError(
        f"the operator {node.target} of torch cannot be compiled", where=f"node {place(node)}", why=why, hint=hint
    )


def place(node: fx.Node) -> str:
    """Return the node's name in quotes, the module that it is in and the line of its source."""
    stack: Mapping[str, tuple[str, Any]] = node.meta.get("nn_module_stack") or {}
    path = list(stack.values())[-1][0] if stack else ""
    lines = [line.strip() for line in (node.meta.get("stack_trace") or "").strip().splitlines()]
    source = " ".join(lines[-2:])
    parts = [repr(node.name), f"module {path!r}" if path else "", source]
    return ", ".join(part for part in parts if part)
