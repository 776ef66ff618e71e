"""What is known of an ONNX graph before it is translated: types, neighbours, and which nodes the run leaves out."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from onnx import NodeProto, TypeProto

from fusion.errors import FusionError
from fusion.frontends.onnx.expand import cast_of_cast_like, reads
from fusion.frontends.onnx.fold import fold
from fusion.frontends.onnx.infer import InferenceError, infer_types
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import known_dims

_MOST_ELEMENTS = 1024
"""Of a value that is computed now: shapes are small, and weights are not needed."""
_RANDOM = frozenset({"RandomNormalLike", "RandomUniformLike", "Multinomial", "Bernoulli", "Dropout"})


@dataclass
class Survey:
    """A graph's nodes, with neither a result nor the run itself.

    Attributes:
        nodes: In order.
        types: Of every value, where inference tells.
        known: Indices of nodes that depend on no input, as far as shapes are known.
        before: For each node, those that make what it reads.
        after: For each node, those that read what it makes.
        fixed: The values that depend on no input.
    """

    nodes: list[NodeProto]
    types: dict[str, TypeProto]
    known: set[int] = field(default_factory=set)
    before: list[set[int]] = field(default_factory=list)
    after: list[set[int]] = field(default_factory=list)
    fixed: set[str] = field(default_factory=set)


def survey(
    nodes: Iterable[NodeProto],
    opsets: Mapping[str, int],
    around: ValueScope,
    declared: dict[str, TypeProto],
) -> Survey:
    """Return what is known of `nodes`, where `around` has the types and constants that they read from elsewhere."""
    found = Survey(list(nodes), {})
    scope = around.beside()
    made: dict[str, int] = {}
    fixed = set(scope.constants)
    for index, proto in enumerate(found.nodes):
        node = cast_of_cast_like(proto, scope.types)
        opset = opsets.get(node.domain, 1)
        inferred = _types(node, opset, scope, declared)
        scope.types.update(inferred)
        if _is_known(node, fixed, scope):
            found.known.add(index)
            fixed.update(node.output)
            if all(math.prod(known_dims(kind) or (0,)) <= _MOST_ELEMENTS for kind in inferred.values()):
                fold(node, opset, scope, inferred)
        found.before.append({made[name] for name in reads(node) if name in made})
        made.update((name, index) for name in node.output if name)
    found.types, found.fixed = scope.types, fixed
    found.after = [set() for _ in found.nodes]
    for index, before in enumerate(found.before):
        for source in before:
            found.after[source].add(index)
    return found


def _types(node: NodeProto, opset: int, scope: ValueScope, declared: dict[str, TypeProto]) -> dict[str, TypeProto]:
    try:
        return infer_types(node, opset, scope, declared)
    except (InferenceError, FusionError):  # the translation says so, if it comes to the node
        return {}


def _is_known(node: NodeProto, fixed: set[str], scope: ValueScope) -> bool:
    if node.op_type in ("Shape", "Size") and not node.domain:
        return known_dims(scope.types.get(node.input[0])) is not None
    if node.op_type in _RANDOM or any(attribute.HasField("g") for attribute in node.attribute):
        return False
    return all(name in fixed for name in node.input if name)
