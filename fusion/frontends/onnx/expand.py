"""Replaces a node by other nodes: function bodies and the branch of an If whose condition is known."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import onnx
from onnx import NodeProto, TensorProto, TypeProto

from fusion.frontends.onnx.infer import schema_of
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.types import HALVES, dims_of
from fusion.frontends.onnx.weights import Weights

_OF_AXES = ("Squeeze", "Unsqueeze")
_WHOLE = ("AffineGrid", "ReduceL2", "ReduceLogSumExp")
"""Operators that ONNX Runtime has kernels for, and whose bodies divide 0 by 0 for an image of one pixel, square
integers in their own type and take roots in float32, or overflow where the result does not."""
_FLAGS = {"allowzero": 0, "keepdims": 0, "largest": 0, "noop_with_empty_axes": 0, "periodic": 1, "sorted": 0}
"""What ONNX Runtime takes numbers other than 0 and 1 for; the bodies of windows compute with them."""
_LOSSES = ("NegativeLogLikelihoodLoss", "SoftmaxCrossEntropyLoss")
"""Operators whose bodies add up numbers that half precision need not hold, where it holds their mean; ONNX Runtime runs
the whole body in float32."""


@dataclass(frozen=True)
class Expansion:
    """The nodes that take a node's place, the constants they read, and what the replaced outputs are now called."""

    nodes: Sequence[NodeProto]
    opset: int
    constants: Mapping[str, TensorProto]
    outputs: Mapping[str, str]


def expand_function(
    node: NodeProto, opset: int, standard_opset: int, scope: ValueScope, fresh: Callable[[str], str]
) -> Expansion | None:
    """Return the body that ONNX defines for `node`'s operator, or None where it defines none that helps: a loop is run
    by ONNX Runtime, which has a kernel for the operator itself.

    `opset` is that of the node's own domain; a body that names no version uses the model's `standard_opset`.
    """
    body = None if node.op_type in _WHOLE else _body(node, opset, scope)
    if body is None or any(inner.op_type == "Loop" for inner in body.node):
        return None
    names = {formal: "" for formal in body.input}
    names.update(zip(body.input, node.input, strict=False))
    schema = schema_of(node, opset)
    defaults = {} if schema is None else {name: a.default_value for name, a in schema.attributes.items()}
    attributes = {**{n: v for n, v in defaults.items() if v.name}, **{a.name: a for a in node.attribute}}
    nodes = [_instantiate(inner, names, attributes, fresh) for inner in body.node]
    outputs = dict(zip(node.output, (names.get(formal, "") for formal in body.output), strict=False))
    version = next((o.version for o in body.opset_import if not o.domain), standard_opset)
    return Expansion(nodes, version, {}, {actual: new for actual, new in outputs.items() if actual and new})


def expand_if(node: NodeProto, opset: int, scope: ValueScope, fresh: Callable[[str], str]) -> Expansion | None:
    """Return the branch that runs, or None where the condition is not constant, or has no one value, or the branch
    returns another number of values than the If.
    """
    if node.op_type != "If" or node.input[0] not in scope.constants or scope.array(node.input[0]).size != 1:
        return None
    wanted = "then_branch" if bool(scope.array(node.input[0]).item()) else "else_branch"
    graph = next(attribute.g for attribute in node.attribute if attribute.name == wanted)
    if len(graph.output) != len(node.output):
        return None
    weights = Weights.of(graph).protos
    names = {name: fresh(name) for name in weights}
    constants = {names[name]: tensor for name, tensor in weights.items()}
    nodes = [_instantiate(inner, names, {}, fresh) for inner in graph.node]
    results = zip(node.output, graph.output, strict=True)
    outputs = {actual: names.get(value.name, value.name) for actual, value in results if actual}
    return Expansion(nodes, opset, constants, outputs)


def expand_half_loss(node: NodeProto, opset: int, scope: ValueScope, fresh: Callable[[str], str]) -> Expansion | None:
    """Return a loss of half precision as one of float32 between casts; None for any other node."""
    kind = _kind_of(node.input[0], scope) if node.op_type in _LOSSES else None
    if node.domain or kind not in HALVES:
        return None
    make = onnx.helper.make_node
    read = {name: fresh(name) for name in node.input if name and _kind_of(name, scope) == kind}
    made = {name: fresh(name) for name in node.output if name}
    results = {name: fresh(name) for name in made}
    loss = rename(node, read)
    loss.output[:] = [made.get(name, "") for name in node.output]
    before = [make("Cast", [name], [wide], to=TensorProto.FLOAT) for name, wide in read.items()]
    after = [make("Cast", [made[name]], [narrow], to=kind) for name, narrow in results.items()]
    return Expansion([*before, loss, *after], opset, {}, results)


def _kind_of(name: str, scope: ValueScope) -> int:
    """Return the type of the elements of a value, 0 where it is not known."""
    return int(scope.types.get(name, TypeProto()).tensor_type.elem_type)


def cast_of_cast_like(node: NodeProto, types: Mapping[str, TypeProto]) -> NodeProto:
    """Return a CastLike as the Cast it is once the type it looks at is known: it then folds, and reads one value
    less."""
    kind = types.get(node.input[1]) if node.op_type == "CastLike" and not node.domain else None
    if kind is None or not kind.tensor_type.elem_type:
        return node
    kept = [attribute for attribute in node.attribute if attribute.name in ("saturate", "round_mode")]
    cast = onnx.helper.make_node("Cast", [node.input[0]], list(node.output), node.name, to=kind.tensor_type.elem_type)
    cast.attribute.extend(kept)
    return cast


def without_empty_inputs(node: NodeProto) -> NodeProto:
    """Return `node` without the inputs, but the first, that are left out at its end: ONNX Runtime's kernels take them
    for given ones."""
    kept = len(node.input)
    while kept > 1 and not node.input[kept - 1]:
        kept -= 1
    if kept == len(node.input):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    del copy.input[kept:]
    return copy


def plain_axes(node: NodeProto, types: Mapping[str, TypeProto]) -> NodeProto:
    """Return a Squeeze or Unsqueeze whose attribute names axes counted from 0 and ascending, and a Squeeze by no axes
    without them.

    Of other ones onnx's inference and reference make something else than ONNX Runtime, or nothing.
    """
    if node.domain or node.op_type not in _OF_AXES:
        return node
    axes = next((list(attribute.ints) for attribute in node.attribute if attribute.name == "axes"), None)
    if node.op_type == "Squeeze" and (axes == [] or (len(node.input) > 1 and _dims(node.input[1], types) == (0,))):
        return onnx.helper.make_node("Squeeze", [node.input[0]], list(node.output), node.name)
    dims = _dims(node.input[0], types)
    if not axes or dims is None:
        return node
    rank = len(dims) + (len(axes) if node.op_type == "Unsqueeze" else 0)
    plain = sorted(axis + rank if -rank <= axis < 0 else axis for axis in axes)
    if plain == axes:
        return node
    return onnx.helper.make_node(node.op_type, list(node.input), list(node.output), node.name, axes=plain)


def plain_attributes(node: NodeProto) -> NodeProto:
    """Return `node` with flags that are 0 or 1, and with the default of STFT's `onesided`, which onnx's inference takes
    for 0."""
    if node.domain:
        return node
    attributes = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type == "STFT" and "onesided" not in attributes:
        return _with_attribute(node, "onesided", 1)
    for name in _FLAGS.keys() & attributes.keys():
        if attributes[name].i not in (0, 1):
            node = _with_attribute(node, name, _FLAGS[name])
    return node


def _with_attribute(node: NodeProto, name: str, value: int) -> NodeProto:
    copy = NodeProto()
    copy.CopyFrom(node)
    others = [attribute for attribute in node.attribute if attribute.name != name]
    del copy.attribute[:]
    copy.attribute.extend([*others, onnx.helper.make_attribute(name, value)])
    return copy


def _dims(name: str, types: Mapping[str, TypeProto]) -> tuple[int | None, ...] | None:
    return dims_of(types[name]) if name in types else None


def rename(node: NodeProto, names: Mapping[str, str]) -> NodeProto:
    """Return `node` with the values it reads renamed, inside its subgraphs too (which may shadow a name)."""
    if not any(name in names for name in reads(node)):
        return node
    copy = NodeProto()
    copy.CopyFrom(node)
    copy.input[:] = [names.get(name, name) for name in node.input]
    for attribute in copy.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            _rename_graph(graph, names)
    return copy


def reads(node: NodeProto) -> Iterable[str]:
    """Yield the name of every value that `node` reads, as its inputs or from within its subgraphs."""
    yield from node.input
    yield from captured(node)


def captured(node: NodeProto) -> Iterable[str]:
    """Yield the name of every value around `node` that its subgraphs read."""
    for attribute in node.attribute:
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            own = _own(graph)
            inside = (name for inner in graph.node for name in reads(inner))
            yield from (name for name in (*inside, *(value.name for value in graph.output)) if name not in own)


def _own(graph: onnx.GraphProto) -> set[str]:
    """Return the names of the values that a subgraph defines; they hide those around it."""
    inputs, weights = (value.name for value in graph.input), (tensor.name for tensor in graph.initializer)
    sparse = (tensor.values.name for tensor in graph.sparse_initializer)
    return {*inputs, *weights, *sparse, *(name for node in graph.node for name in node.output)}


def _rename_graph(graph: onnx.GraphProto, names: Mapping[str, str]) -> None:
    own = _own(graph)
    visible = {old: new for old, new in names.items() if old not in own}
    for index, node in enumerate(graph.node):
        graph.node[index].CopyFrom(rename(node, visible))
    # A subgraph may return an outer value, which then needs its new name.
    for value in graph.output:
        value.name = visible.get(value.name, value.name)


def _body(node: NodeProto, opset: int, scope: ValueScope) -> onnx.FunctionProto | None:
    schema = schema_of(node, opset)
    if schema is None:
        return None
    if schema.has_context_dependent_function:
        versions = [v for v in schema.context_dependent_function_opset_versions if v <= opset]
        kinds = [scope.types.get(name, TypeProto()).SerializeToString() for name in node.input]
        if versions and all(kinds[index] or not name for index, name in enumerate(node.input)):
            found = schema.get_context_dependent_function_with_opset_version(
                max(versions), node.SerializeToString(), kinds
            )
            return onnx.FunctionProto.FromString(found) if found else None
    if schema.has_function:
        versions = [v for v in schema.function_opset_versions if v <= opset]
        return (
            onnx.FunctionProto.FromString(schema.get_function_with_opset_version(max(versions))) if versions else None
        )
    return None


def _instantiate(
    inner: NodeProto, names: dict[str, str], attributes: Mapping[str, onnx.AttributeProto], fresh: Callable[[str], str]
) -> NodeProto:
    """Return a copy of a body's node with actual values and attributes; `names` learns the outputs' new names."""
    copy = NodeProto()
    copy.CopyFrom(rename(inner, names))
    _fill_attributes(copy, attributes)
    for index, name in enumerate(inner.output):
        if name:
            names[name] = fresh(name)
            copy.output[index] = names[name]
    return copy


def _fill_attributes(node: NodeProto, attributes: Mapping[str, onnx.AttributeProto]) -> None:
    filled = []
    for attribute in node.attribute:
        if attribute.ref_attr_name:
            actual = attributes.get(attribute.ref_attr_name)
            if actual is None:
                continue
            copy = onnx.AttributeProto()
            copy.CopyFrom(actual)
            copy.name = attribute.name
            filled.append(copy)
            continue
        for graph in [attribute.g] if attribute.HasField("g") else attribute.graphs:
            for inner in graph.node:
                _fill_attributes(inner, attributes)
        filled.append(attribute)
    kept = [onnx.AttributeProto.FromString(attribute.SerializeToString()) for attribute in filled]
    del node.attribute[:]
    node.attribute.extend(kept)
