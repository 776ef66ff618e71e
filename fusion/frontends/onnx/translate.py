"""One forward pass over an ONNX graph: fold constants, infer types, convert nodes, leave the rest to the fallback."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import count
from types import MappingProxyType

import onnx
from onnx import NodeProto, TensorProto, TypeProto
from tvm import relax

from fusion.declined import Declined
from fusion.errors import FusionError, NeedsFallbackError, ShapeError, UnsupportedOperatorError
from fusion.failures import report
from fusion.frontends.imported import FallbackNode, ImportedModel, TensorSpec, branch_call
from fusion.frontends.onnx.alike import AlikeNodes, Findings
from fusion.frontends.onnx.ask_types import ask_types
from fusion.frontends.onnx.branches import Branch, assemble, common_results, split_if
from fusion.frontends.onnx.checked_operands import check_operand, has_checked_operand
from fusion.frontends.onnx.checks import check_node
from fusion.frontends.onnx.convert import convert_node, is_native
from fusion.frontends.onnx.drop_casts import drop_unused_casts
from fusion.frontends.onnx.expand import (
    Expansion,
    cast_of_cast_like,
    expand_function,
    expand_half_loss,
    expand_if,
    plain_attributes,
    plain_axes,
    reads,
    rename,
    without_empty_inputs,
)
from fusion.frontends.onnx.fallback import FallbackPlan, NotATensor, can_cross, name_of, not_held, whole_model
from fusion.frontends.onnx.fold import fold
from fusion.frontends.onnx.fold_cost import Budget
from fusion.frontends.onnx.fused import expand_fused, has_rule
from fusion.frontends.onnx.half_attributes import beyond_half
from fusion.frontends.onnx.infer import InferenceError, infer_types, schema_of
from fusion.frontends.onnx.limits import check_types
from fusion.frontends.onnx.node import Node, where_of
from fusion.frontends.onnx.plan_fallbacks import FallbackChoice, choose_fallbacks
from fusion.frontends.onnx.scope import ValueScope, identifier
from fusion.frontends.onnx.signature import spec_of
from fusion.frontends.onnx.sizes_read import SizesRead
from fusion.frontends.onnx.slow_operators import OURS_ALONE
from fusion.frontends.onnx.types import FLOATING, data_bytes, dims_of, dtype_name, known_dims, type_name, type_of_spec
from fusion.frontends.onnx.weights import Weights
from fusion.frontends.origins import Origins

_NONE: Mapping[str, str] = MappingProxyType({})
_MAKERS = frozenset({"ConstantOfShape", "Expand", "Range", "Resize", "Tile", "Upsample"})
"""Operators whose result has sizes that are not those of what they have."""


def translate(
    model: onnx.ModelProto,
    weights: Weights,
    inputs: dict[str, TypeProto],
    *,
    strict: bool,
    computes_made: bool = False,
    byte_products: tuple[tuple[str, str], ...] = (),
    by_libraries: bool = False,
    declined: Mapping[str, str] = _NONE,
) -> ImportedModel:
    """Return `model`, which has no local functions, as Relax, its inputs typed as `inputs` says.

    Args:
        weights: Those of its graph.
        computes_made: Whether runs compute what operators make of sizes, as a grid of places, where it is read as data.
        byte_products: The products of bytes for which the target has kernels (`KernelCompiler.byte_products`).
        by_libraries: Whether libraries are to run all operators, so that ONNX Runtime gets those which become kernels
            of ours at once, unless `strict`.
        declined: Nodes, by their first output, that ONNX Runtime is to run, and why.

    Raises:
        NeedsFallbackError: A node needs the fallback and `strict` is set.
        UnsupportedOperatorError: The fallback cannot run a node.
        InvalidModelError: A node breaks its operator's definition.
        ShapeError: Attributes or inputs of a node contradict each other.
    """
    domains = {"": 1, **{o.domain: o.version for o in model.opset_import}}
    try:
        shared = _Shared(
            strict, count(), _budget(model), computes_made, byte_products=byte_products, by_libraries=by_libraries
        )
        translator = _Translator(
            model.graph, weights, domains, inputs=inputs, constants={}, shared=shared, declined=declined
        )
        imported = None if translator.whole else translator.run()
        why = translator.whole
    except NotATensor as error:
        imported, why = None, str(error)
    except UnsupportedOperatorError as refusal:
        if strict or any(map(has_checked_operand, model.graph.node)):
            raise
        imported = _taken_whole(weights.in_model(model), refusal)
    if imported is None:
        imported = whole_model(weights.in_model(model), why)
    if strict and imported.fallbacks:
        raise _refusal(imported.fallbacks, domains[""])
    return imported


def _taken_whole(model: onnx.ModelProto, refusal: UnsupportedOperatorError) -> ImportedModel:
    """Return `model` as ONNX Runtime runs it, which has refused a part of it: of that it is told shapes which it finds
    at odds with each other, and of the whole it may infer none.

    Raises:
        UnsupportedOperatorError: It refuses the whole, too.
    """
    try:
        return whole_model(model, f"ONNX Runtime refuses a part of the model: {refusal.why}")
    except UnsupportedOperatorError:
        raise refusal from None


def _budget(model: onnx.ModelProto) -> Budget:
    return Budget(sum(map(data_bytes, model.graph.initializer)))


def _refusal(nodes: tuple[FallbackNode, ...], opset: int) -> NeedsFallbackError:
    first = nodes[0]
    return NeedsFallbackError(
        f"{len(nodes)} node(s) need the fallback: {', '.join(sorted({node.op for node in nodes}))}",
        where=f"{first.op} {first.node!r} (opset {opset})",
        why=first.reason,
    )


def _is_data(kind: TypeProto) -> bool:
    """Return whether a value is none that says which shape another one has: those are integers, and made of rows of
    bools."""
    dims, element = known_dims(kind) or (), kind.tensor_type.elem_type
    return (element in FLOATING and len(dims) > 0) or (element == TensorProto.BOOL and len(dims) > 1)


@dataclass(frozen=True)
class _Shared:
    """What a graph and its branches share.

    Attributes:
        strict: As in `translate`.
        numbers: Make names unique in the whole model.
        budget: Pays for folding.
        computes_made, byte_products, by_libraries: As in `translate`.
        sizes_read: Told of what is computed of sizes.
        alike: What has been found of nodes.
    """

    strict: bool
    numbers: Iterator[int]
    budget: Budget
    computes_made: bool
    byte_products: tuple[tuple[str, str], ...]
    by_libraries: bool
    sizes_read: SizesRead = field(default_factory=SizesRead)
    alike: AlikeNodes = field(default_factory=AlikeNodes)


class _Translator:
    """The state of one pass over a graph, or over a branch: what is known of each value, and the work still to do.

    `weights` are its own, `constants` those of the graph around a branch that it reads; `declined`
    is as in `translate`.

    Attributes:
        whole: Why ONNX Runtime is to run the whole graph; "" where it is not.
    """

    def __init__(
        self,
        graph: onnx.GraphProto,
        weights: Weights,
        domains: dict[str, int],
        inputs: Mapping[str, TypeProto],
        constants: Mapping[str, TensorProto],
        shared: _Shared,
        declined: Mapping[str, str],
    ) -> None:
        self._domains = domains
        self._shared = shared
        self._scope = ValueScope(
            types=dict(inputs), budget=shared.budget, sizes_read=shared.sizes_read, make=self._make
        )
        for name, tensor in constants.items():
            self._scope.add_constant(name, tensor)
        self._scope.add_weights(weights)
        self._inputs = inputs
        self._outputs = list(graph.output)
        self._declared = {value.name: value.type for value in (*graph.value_info, *graph.output)}
        choice = FallbackChoice(tuple(graph.node), {})
        if not shared.strict:
            choice = choose_fallbacks(
                graph, domains, self._scope, self._declared, byte_products=shared.byte_products
            )
        self.whole = "" if any(map(has_checked_operand, graph.node)) else choice.whole
        self._declined = {**choice.reasons, **declined}
        self._work = deque((node, domains[""]) for node in choice.nodes if not weights.has(node))
        self._names: dict[str, str] = {}
        self._current = NodeProto()
        self._branches: dict[str, ImportedModel] = {}
        self._builder = relax.BlockBuilder()
        self._origins = Origins()
        self._plan = FallbackPlan(self._scope, self._builder, self._still_read, self._domains)

    def run(self) -> ImportedModel:
        parameters = [self._parameter(name, kind) for name, kind in self._inputs.items()]
        with self._builder.function("main", parameters):
            with self._builder.dataflow():
                while self._work:
                    self._translate(*self._work.popleft())
                results = [self._result(self._actual(value.name)) for value in self._outputs]
                result = self._builder.emit_output(results[0] if len(results) == 1 else relax.Tuple(results))
            self._builder.emit_func_output(result)
        mod = self._origins.attach(drop_unused_casts(self._builder.get()))
        specs = tuple(spec_of(name, kind) for name, kind in self._inputs.items())
        outputs = tuple(map(self._output_spec, self._outputs))
        imported = assemble(mod, specs, outputs, self._plan.subgraphs, self._branches)
        read = self._shared.sizes_read
        return replace(imported, is_uneven=read.is_uneven, asked_for=frozenset(read.asked_for))

    def _parameter(self, name: str, kind: TypeProto) -> relax.Var:
        shape = known_dims(kind)
        if shape is None or not can_cross(kind):
            raise NotATensor(not_held(name, kind))
        variable = relax.Var(identifier(name), relax.TensorType(shape, dtype_name(kind.tensor_type.elem_type)))
        self._scope.exprs[name] = variable
        return variable

    def _result(self, name: str) -> relax.Expr:
        kind = self._scope.types.get(name)
        if name in self._scope.constants and kind is not None and not can_cross(kind):
            raise NotATensor(f"output {name!r} is a constant of {type_name(kind)}, which no tensor of TVM holds")
        return self._scope.expr(name)

    def _output_spec(self, value: onnx.ValueInfoProto) -> TensorSpec:
        return spec_of(value.name, self._scope.types.get(self._actual(value.name), value.type))

    def _translate(self, proto: NodeProto, standard_opset: int) -> None:
        node = cast_of_cast_like(self._renamed(proto), self._scope.types)
        opset = standard_opset if not node.domain else self._domains.get(node.domain, 1)
        try:
            self._translate_node(node, opset, standard_opset)
        except (FusionError, NotATensor, MemoryError):
            raise
        except Exception as error:  # a defect, or what a library raises: no node ends the import
            self._defer(node, opset, report(f"importing {node.op_type} {name_of(node)!r} failed", error))
        self._current = NodeProto()

    def _renamed(self, proto: NodeProto) -> NodeProto:
        """Return `proto`, whose inputs are called what they are after all expansions."""
        if not self._names:
            return proto
        return rename(proto, {name: self._actual(name) for name in reads(proto) if name in self._names})

    def _translate_node(self, node: NodeProto, opset: int, standard_opset: int) -> None:
        findings = self._check(node, opset)
        node = plain_attributes(plain_axes(without_empty_inputs(node), self._scope.types))
        self._current = node
        check_operand(Node(node, opset, (), self._scope, self._builder))
        declined = self._declined.get(name_of(node)) or findings.beyond_half or self._left_to_libraries(node)
        if declined:
            self._defer(node, opset, declined)
            return
        instead = expand_if(node, opset, self._scope, self._fresh) or expand_half_loss(
            node, opset, self._scope, self._fresh
        )
        if instead is not None:
            self._splice(instead)
            return
        try:
            types = infer_types(node, opset, self._scope, self._declared, findings)
        except InferenceError as reason:
            self._defer(node, opset, str(reason))
            return
        is_made = self._is_made(node)
        is_left = is_made and any(map(_is_data, types.values()))
        if not is_left and fold(node, opset, self._scope, types, findings):
            if is_made:
                self._scope.made.update(dict.fromkeys(node.output, (node, opset)))
            return
        if not findings.fits:
            check_types(types, node)
            findings.fits = bool(findings.types)
        self._scope.add_types(types, findings.shapes)
        try:
            fused = self._expand_fused(node, opset)
            if fused is not None:
                self._splice(fused)
            elif node.op_type == "If" and not node.domain:
                self._convert_if(node, opset)
            else:
                convert_node(node, opset, self._scope, self._builder, findings)
            self._note(node)
        except Declined as reason:
            self._expand_or_defer(node, opset, standard_opset, str(reason))

    def _check(self, node: NodeProto, opset: int) -> Findings:
        """Check `node`, unless it is like one that was, and return what has been found of such nodes."""
        findings = self._shared.alike.find(node, opset, self._scope)
        if not findings.is_checked:
            seen = Node(node, opset, (), self._scope, self._builder)
            check_node(seen)
            findings.beyond_half = beyond_half(seen)
            findings.is_checked = True
        return findings

    def _note(self, node: NodeProto) -> None:
        """Note that `node` makes its outputs, for errors and reasons."""
        where = where_of(node)
        for name in node.output:
            self._origins.note(self._scope.exprs.get(name), where)
        self._scope.note_open(node, where)

    def _left_to_libraries(self, node: NodeProto) -> str:
        """Return why ONNX Runtime is to run a node that becomes a kernel of ours here; "" where it is not."""
        is_ours = (node.domain, node.op_type) in OURS_ALONE
        if self._shared.strict or not self._shared.by_libraries or not is_ours:
            return ""
        return f"{node.op_type}: backends= names no kernels of ours, which alone run it beside ONNX Runtime's"

    def _is_made(self, node: NodeProto) -> bool:
        """Return whether operators make what `node` computes of sizes, and runs are to."""
        is_maker = node.op_type in _MAKERS and not node.domain
        return self._shared.computes_made and (is_maker or any(name in self._scope.made for name in node.input))

    def _make(self, name: str) -> None:
        with suppress(Declined):
            node, opset = self._scope.made.pop(name)
            convert_node(node, opset, self._scope, self._builder)

    def _defer(self, node: NodeProto, opset: int, reason: str) -> None:
        """Leave `node` to ONNX Runtime, as it is; where inference refuses it, ONNX Runtime says whether it runs."""
        try:
            types = infer_types(node, opset, self._scope, self._declared)
        except InferenceError:
            types = {name: self._declared[name] for name in node.output if name in self._declared}
        if schema_of(node, opset) is None:
            told = ask_types(node, self._scope, self._domains)
            types |= {name: kind for name, kind in told.items() if name not in types or dims_of(kind) is not None}
        self._scope.types.update(types)
        self._scope.note_open(node, where_of(node))
        self._plan.defer(node, opset, reason)

    def _expand_fused(self, node: NodeProto, opset: int) -> Expansion | None:
        if not has_rule(node.domain, node.op_type, opset) or not is_native(node, self._scope):
            return None
        return expand_fused(Node(node, opset, (), self._scope, self._builder), self._fresh)

    def _convert_if(self, node: NodeProto, opset: int) -> None:
        """Translate the branches as modules of their own, which take what they read of this graph as inputs.

        Raises:
            Declined: A branch cannot be translated, or they do not return tensors of the same static types.
        """
        branches = split_if(node, self._scope)
        domains = {**self._domains, "": opset}
        try:
            then, other = (self._branch(branch, domains).run() for branch in branches)
        except NotATensor as error:
            raise Declined(f"in a branch: {error}") from error
        except (ShapeError, UnsupportedOperatorError) as error:
            # A branch that never runs for these sizes may contradict them. ONNX Runtime's own message, which `why` ends
            # with, may have several lines; a reason has one.
            raise Declined(" ".join(f"in a branch: {error.what}; {error.why}".split())) from error
        specs = common_results(then, other)
        names = self._fresh("branch"), self._fresh("branch")
        self._branches.update(zip(names, (then, other), strict=True))
        condition = self._builder.emit(relax.op.reshape(self._scope.expr(node.input[0]), ()))
        arguments = [self._scope.expr(name) for name in branches[0].inputs]
        types = [relax.TensorType(spec.shape, spec.dtype) for spec in specs]
        call = branch_call(condition, *names, arguments, types[0] if len(types) == 1 else relax.TupleType(types))
        result = self._builder.emit(call, name_hint=identifier(node.output[0]))
        for index, (name, spec) in enumerate(zip(node.output, specs, strict=True)):
            if name:
                item = relax.TupleGetItem(result, index)
                self._scope.types[name] = type_of_spec(spec)
                self._scope.exprs[name] = result if len(specs) == 1 else self._builder.emit(item, identifier(name))

    def _branch(self, branch: Branch, domains: dict[str, int]) -> _Translator:
        graph, inputs, constants = branch.graph, branch.inputs, branch.constants
        return _Translator(
            graph, Weights.of(graph), domains, inputs=inputs, constants=constants, shared=self._shared, declined=_NONE
        )

    def _expand_or_defer(self, node: NodeProto, opset: int, standard_opset: int, reason: str) -> None:
        native = is_native(node, self._scope)
        body = expand_function(node, opset, standard_opset, self._scope, self._fresh) if native else None
        if body is not None:
            self._splice(body)
        else:
            self._defer(node, opset, reason)

    def _splice(self, expansion: Expansion) -> None:
        """Put the nodes of `expansion` next in line; later readers of the replaced outputs read the new names."""
        for name, tensor in expansion.constants.items():
            self._scope.add_constant(name, tensor)
        for old, new in expansion.outputs.items():
            self._names[old] = new
            if old in self._declared:
                self._declared.setdefault(new, self._declared[old])
        self._work.extendleft((node, expansion.opset) for node in reversed(expansion.nodes))

    def _actual(self, name: str) -> str:
        """Return what the value `name` is called after all expansions."""
        while name in self._names:
            name = self._names[name]
        return name

    def _still_read(self) -> set[str]:
        """Return the values that the model's outputs and the nodes not yet translated read."""
        names = {value.name for value in self._outputs}
        names.update(name for node, _ in self._work for name in reads(node))
        return {self._actual(name) for name in names} | set(reads(self._current))

    def _fresh(self, name: str) -> str:
        return f"{name}__{next(self._shared.numbers)}"
