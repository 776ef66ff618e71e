"""Collects the nodes that ONNX Runtime must run, and merges neighbours into one subgraph each.

Nodes come in topological order. A node waits until a native node or the model's output reads it; then it is emitted
with all waiting nodes that it is connected to. Everything such a group reads was computed before, so the merge makes no
cycle.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import onnx
import tvm
from onnx import NodeProto, TensorProto, TypeProto
from onnx.helper import make_graph, make_model, make_opsetid
from tvm import relax
from tvm.relax import BlockBuilder, Expr

from backends.registry import model_runner
from backends.subgraphs import RUN_SUBGRAPH
from fusion.errors import FusionError, ShapeError, UnsupportedOperatorError
from fusion.frontends.imported import FallbackNode, ImportedModel
from fusion.frontends.onnx.checks import OTHER_SHAPES
from fusion.frontends.onnx.expand import reads
from fusion.frontends.onnx.infer import CONTRADICTION, schema_of
from fusion.frontends.onnx.scope import ValueScope, identifier
from fusion.frontends.onnx.signature import read_specs
from fusion.frontends.onnx.types import NATIVE_DTYPES, dims_of, dtype_name, known_dims, type_name

# Beyond the native dtypes, TVM's runtime tensors hold these, whole bytes each.
_CROSSING_DTYPES = NATIVE_DTYPES | {
    TensorProto.BFLOAT16,
    TensorProto.FLOAT8E4M3FN,
    TensorProto.FLOAT8E4M3FNUZ,
    TensorProto.FLOAT8E5M2,
    TensorProto.FLOAT8E5M2FNUZ,
    TensorProto.FLOAT8E8M0,
}


class NotATensor(Exception):
    """A value that TVM cannot hold would have to leave a subgraph: the whole model must be one."""


@dataclass(frozen=True)
class _Waiting:
    node: NodeProto
    opset: int
    reason: str

    @property
    def name(self) -> str:
        return str(self.node.name or next(iter(self.node.output), ""))


@dataclass(frozen=True)
class OnnxSubgraph:
    """The bytes of one ONNX model, and the nodes in it."""

    data: bytes
    nodes: tuple[FallbackNode, ...]


class FallbackPlan:
    """The waiting nodes and the subgraphs made so far, by key."""

    def __init__(
        self, scope: ValueScope, builder: BlockBuilder, still_read: Callable[[], set[str]], domains: dict[str, int]
    ) -> None:
        self.subgraphs: dict[str, OnnxSubgraph] = {}
        self._scope, self._builder, self._still_read, self._domains = scope, builder, still_read, domains
        self._waiting: list[_Waiting] = []
        scope.materialize = self._emit_group_of

    def defer(self, node: NodeProto, opset: int, reason: str) -> None:
        """Let `node` wait for a subgraph."""
        self._waiting.append(_Waiting(node, opset, reason))

    def _emit_group_of(self, name: str) -> None:
        group = self._group_of(name)
        if not group:
            raise UnsupportedOperatorError(f"no node computes {name!r}", where=name)
        self._waiting = [item for item in self._waiting if item not in group]
        read_later = self._still_read() | {name} | {n for item in self._waiting for n in reads(item.node)}
        outputs = [n for item in group for n in item.node.output if n and n in read_later]
        inputs = self._inputs_of(group)
        model = self._model_of(group, inputs, outputs)
        data = _prepare(model, group)
        key = hashlib.sha256(data).hexdigest()
        nodes = [FallbackNode(item.node.op_type, item.name, item.reason, key) for item in group]
        self.subgraphs[key] = OnnxSubgraph(data, tuple(nodes))
        self._emit_call(key, inputs, outputs)

    def _group_of(self, name: str) -> list[_Waiting]:
        """Return the waiting nodes connected to the producer of `name`, in order."""
        producer = {n: i for i, item in enumerate(self._waiting) for n in item.node.output if n}
        if name not in producer:
            return []
        links: list[set[int]] = [set() for _ in self._waiting]
        for index, item in enumerate(self._waiting):
            for source in {producer[n] for n in reads(item.node) if n in producer}:
                links[index].add(source)
                links[source].add(index)
        found, todo = {producer[name]}, [producer[name]]
        while todo:
            new = links[todo.pop()] - found
            found |= new
            todo += new
        return [self._waiting[index] for index in sorted(found)]

    def _inputs_of(self, group: list[_Waiting]) -> list[str]:
        made = {n for item in group for n in item.node.output}
        names = dict.fromkeys(n for item in group for n in reads(item.node))
        return [n for n in names if n and n not in made and n not in self._scope.constants and n in self._scope.exprs]

    def _model_of(self, group: list[_Waiting], inputs: list[str], outputs: list[str]) -> onnx.ModelProto:
        for name in (*inputs, *outputs):
            kind = self._scope.types.get(name)
            if kind is None or not can_cross(kind):
                makers = (item.node for item in group if name in item.node.output)
                raise NotATensor(not_held(name, kind, next(makers, None)))
        constants = {
            n: self._scope.tensor(n) for item in group for n in reads(item.node) if n in self._scope.constants
        }
        graph = make_graph(
            [item.node for item in group],
            "fallback",
            [self._info(n) for n in inputs],
            [self._info(n) for n in outputs],
            [_named(tensor, n) for n, tensor in constants.items()],
        )
        versions = {**self._domains, "": _common_opset(group)}
        return make_model(graph, opset_imports=[make_opsetid(domain, version) for domain, version in versions.items()])

    def _info(self, name: str) -> onnx.ValueInfoProto:
        return onnx.helper.make_value_info(name, self._scope.types[name])

    def _emit_call(self, key: str, inputs: list[str], outputs: list[str]) -> None:
        types = [_relax_type(self._scope.types[name]) for name in outputs]
        arguments = [tvm.ir.StringImm(key), *(self._scope.expr(name) for name in inputs)]
        call = relax.op.call_pure_packed(
            RUN_SUBGRAPH, *arguments, ty_args=types[0] if len(types) == 1 else relax.TupleType(types)
        )
        result = self._builder.emit(call, name_hint=identifier(outputs[0]))
        for index, name in enumerate(outputs):
            item: Expr = relax.TupleGetItem(result, index)
            self._scope.exprs[name] = result if len(outputs) == 1 else self._builder.emit(item, identifier(name))


def name_of(node: NodeProto) -> str:
    """Return the name of the first output of `node`, which no other node of its graph has."""
    return next((name for name in node.output if name), "")


def not_held(name: str, kind: TypeProto | None, maker: NodeProto | None = None) -> str:
    """Return why no tensor of TVM holds the value `name`, and who makes it: an input of the model where none does."""
    which = None if kind is None else kind.WhichOneof("value")
    words = {"sequence_type": "a sequence", "optional_type": "an optional", "map_type": "a map"}
    what = words.get(which or "", "a value of unknown type")
    if kind is not None and which == "tensor_type":
        what = f"a tensor of {type_name(kind)}" if not can_cross(kind) else "a tensor of unknown shape"
    if maker is None:
        return f"input {name!r} is {what}, which no tensor of TVM holds"
    return f"{maker.op_type} {maker.name or name!r} makes {what}, which no tensor of TVM holds"


def can_cross(kind: TypeProto) -> bool:
    """Return whether a value of type `kind` can be a TVM tensor."""
    return kind.WhichOneof("value") == "tensor_type" and kind.tensor_type.elem_type in _CROSSING_DTYPES


def whole_model(model: onnx.ModelProto, reason: str) -> ImportedModel:
    """Return `model` as one subgraph that no Relax surrounds.

    Raises:
        UnsupportedOperatorError: ONNX Runtime does not take the model.
    """
    items = [_Waiting(node, _opset_of(node, model), reason) for node in model.graph.node]
    try:
        data = model_runner().prepare(model)
    except UnsupportedOperatorError as refusal:
        named = _named_in(refusal, items)
        if not named:
            raise
        raise _refused(named, refusal) from refusal
    inputs, outputs = read_specs(model.graph)
    key = hashlib.sha256(data).hexdigest()
    nodes = tuple(FallbackNode(item.node.op_type, item.name, reason, key) for item in items)
    return ImportedModel(mod=None, inputs=inputs, outputs=outputs, subgraphs={key: data}, fallbacks=nodes)


def _opset_of(node: NodeProto, model: onnx.ModelProto) -> int:
    return next((int(opset.version) for opset in model.opset_import if opset.domain == node.domain), 1)


def _prepare(model: onnx.ModelProto, group: Sequence[_Waiting]) -> bytes:
    try:
        return _prepare_in_any_form(model)
    except UnsupportedOperatorError as refusal:
        raise _refused(_named_in(refusal, group) or group, refusal) from refusal


def _refused(items: Sequence[_Waiting], refusal: UnsupportedOperatorError) -> FusionError:
    """Return `refusal` of ONNX Runtime as the error of the first of `items`: of its shapes, where ONNX's inference
    refuses them too."""
    first = items[0]
    if CONTRADICTION in first.reason:
        return ShapeError(
            f"the shapes of {first.node.op_type} contradict each other",
            where=f"{first.node.op_type} {first.name!r}",
            why=first.reason,
            hint=OTHER_SHAPES,
        )
    names = ", ".join(dict.fromkeys(item.node.op_type for item in items))
    return UnsupportedOperatorError(
        f"no backend runs {names} as the model uses it",
        hint=refusal.hint,
        why=f"{first.reason}; {refusal.why or refusal.what}",
        where=f"{first.node.op_type} {first.name!r} (opset {first.opset})",
    )


def _named_in(refusal: UnsupportedOperatorError, items: Iterable[_Waiting]) -> list[_Waiting]:
    """Return those of `items` whose operators ONNX Runtime's message names; if it names nodes too, only these."""
    text = f"{refusal.what} {refusal.why}"
    words = set(re.findall(r"\w+", text))
    found = [item for item in items if words.intersection(_operators(item.node))]
    names = [item for item in found if item.node.name and re.search(rf"(?<!\w){re.escape(item.node.name)}(?!\w)", text)]
    return names or found


def _operators(node: NodeProto) -> Iterable[str]:
    yield node.op_type
    for attribute in node.attribute:
        for inner in attribute.g.node:
            yield from _operators(inner)


def _prepare_in_any_form(model: onnx.ModelProto) -> bytes:
    """Return the bytes of `model`, sizes left open if ONNX Runtime refuses it with them.

    Those of the outputs are the file's where inference tells none, and may be wrong. Those of the inputs are right; but
    ONNX Runtime infers shapes in every branch of an If, also in those that only run for inputs of another size, and
    refuses the model where that fails.
    """
    try:
        return model_runner().prepare(model)
    except UnsupportedOperatorError as refusal:
        branches = any(attribute.HasField("g") for node in model.graph.node for attribute in node.attribute)
        open_model = onnx.ModelProto()
        open_model.CopyFrom(model)
        for value in (*(open_model.graph.input if branches else ()), *open_model.graph.output):
            for dim in value.type.tensor_type.shape.dim:
                dim.Clear()
        try:
            return model_runner().prepare(open_model)
        except UnsupportedOperatorError:
            raise refusal from None


def _common_opset(group: list[_Waiting]) -> int:
    """Return an operator set under which every node of `group` means what it means under its own."""
    own = [item.opset for item in group if not item.node.domain]
    for version in sorted(set(own), reverse=True):
        if all(_since(item, version) == _since(item, item.opset) for item in group):
            return version
    return max(own, default=1)


def _since(item: _Waiting, opset: int) -> int:
    schema = schema_of(item.node, opset)
    return 0 if schema is None else int(schema.since_version)


def _named(tensor: TensorProto, name: str) -> TensorProto:
    if tensor.name == name:
        return tensor
    copy = TensorProto()
    copy.CopyFrom(tensor)
    copy.name = name
    return copy


def _relax_type(kind: TypeProto) -> tvm.ir.Type:
    dtype, shape = dtype_name(kind.tensor_type.elem_type), known_dims(kind)
    if shape is not None:
        return relax.TensorType(shape, dtype)
    dims = dims_of(kind)
    return relax.TensorType(dtype=dtype, ndim=-1 if dims is None else len(dims))
