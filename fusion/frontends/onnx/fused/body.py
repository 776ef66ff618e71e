"""The table of operators that ONNX Runtime adds to ONNX, and of those of old sets, and what its rules write: nodes of
ONNX's newer sets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper, numpy_helper
from onnx.helper import np_dtype_to_tensor_dtype

from fusion.declined import Declined
from fusion.frontends.onnx.expand import Expansion
from fusion.frontends.onnx.node import Node
from fusion.tensors import numpy_dtype

OPSET = 23
"""The set whose operators the rules write."""
MICROSOFT = "com.microsoft"
_FAMILIES = ("activations", "attention", "embedding", "norms", "old_sets", "products", "same")


@dataclass
class Body:
    """The nodes that take the place of `node`, whose inputs are static tensors of native dtypes."""

    node: Node
    fresh: Callable[[str], str]
    nodes: list[NodeProto] = field(default_factory=list)
    constants: dict[str, TensorProto] = field(default_factory=dict)

    def x(self, index: int) -> str:
        """Return the name of input `index`, "" where it is not given."""
        return str(self.node.proto.input[index]) if self.node.has(index) else ""

    def op(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Return the name of what a new node computes."""
        return self.ops(operator, 1, *inputs, **attributes)[0]

    def ops(self, operator: str, outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """Return the names of the `outputs` values that a new node computes."""
        names = [self.fresh(self.node.proto.output[0] or operator) for _ in range(outputs)]
        self.nodes.append(helper.make_node(operator, list(inputs), names, self.node.proto.name, **attributes))
        return names

    def const(self, value: Any, dtype: str = "int64") -> str:
        """Return the name of a new constant."""
        name = self.fresh("constant")
        self.constants[name] = numpy_helper.from_array(np.asarray(value, dtype=numpy_dtype(dtype)), name)
        return name

    def like(self, value: Any, index: int = 0) -> str:
        """Return the name of a new constant of the dtype of input `index`."""
        return self.const(value, self.node.dtype(index))

    def cast(self, value: str, dtype: str) -> str:
        """Return the name of `value` in another dtype."""
        return self.op("Cast", value, to=np_dtype_to_tensor_dtype(numpy_dtype(dtype)))

    def refuse(self, condition: object, what: str) -> None:
        """Decline the node if `condition` holds."""
        if condition:
            raise Declined(what)


Rule = Callable[[Body], str | Sequence[str]]
"""Writes nodes and returns the names of the outputs in order, "" for those it does not compute."""

_RULES: dict[tuple[str, str], tuple[Rule, int | None]] = {}


def expands(*operators: str, domain: str = MICROSOFT, below: int | None = None) -> Callable[[Rule], Rule]:
    """Enter the decorated function as the rule of `operators`, in sets below `below` only if that is given."""

    def enter(rule: Rule) -> Rule:
        for operator in operators:
            _RULES[domain, operator] = rule, below
        return rule

    return enter


def _rules() -> dict[tuple[str, str], tuple[Rule, int | None]]:
    if not _RULES:
        for family in _FAMILIES:
            import_module(f"fusion.frontends.onnx.fused.{family}")
    return _RULES


def has_rule(domain: str, operator: str, opset: int = 0) -> bool:
    """Return whether a rule may take nodes of `operator`, in this set or, if none is given, in some."""
    _, below = _rules().get((domain, operator), (None, 0))
    return below is None or opset < below


def expand_fused(node: Node, fresh: Callable[[str], str]) -> Expansion | None:
    """Return what takes the place of `node`, or None if no rule is for its operator.

    Raises:
        Declined: The rule of its operator does not take it; the text says why.
    """
    rule, below = _rules().get((node.proto.domain, node.op), (None, None))
    if rule is None or (below is not None and node.opset >= below):
        return None
    body = Body(node, fresh)
    found = rule(body)
    names = [found] if isinstance(found, str) else list(found)
    outputs = dict(zip(node.proto.output, names, strict=False))
    missing = [name for index, name in enumerate(node.proto.output) if name and not "".join(names[index : index + 1])]
    if missing:
        raise Declined(f"output {missing[0]!r} is asked for")
    return Expansion(body.nodes, OPSET, body.constants, {old: new for old, new in outputs.items() if old})
