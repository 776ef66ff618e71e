"""Writes a Relax function as an ONNX model."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import tvm
from onnx import ModelProto, ValueInfoProto, helper
from tvm import relax, tirx
from tvm.ir import GenericConst

from backends.to_onnx.call import ExportedCall, dtype_of, element_type
from backends.to_onnx.check import why_refused
from backends.to_onnx.graph import IR_VERSION, OPSET, WrittenGraph
from backends.to_onnx.table import CONVERTERS
from fusion.bindings import Bindings, call_name, callee
from fusion.declined import Declined
from fusion.errors import UnsupportedOperatorError
from fusion.shapes import dims_of
from fusion.tensors import as_numpy

Names = str | list["Names"]
"""What a value is called: a tensor, or the fields of a tuple."""


def export_function(
    function: relax.Function, inputs: Sequence[str], outputs: Sequence[str], name: str = "main"
) -> ModelProto:
    """Return `function` as an ONNX model; its constants become weights.

    Args:
        function: Of tensors, no operator of which is a call of a kernel or of a package.
        inputs: What its parameters are called.
        outputs: What its results are called; as many as the tuple that it returns has.
        name: Of the graph.

    Raises:
        UnsupportedOperatorError: ONNX has nothing for an operator, or for a type, or not both together.
    """
    writer = _Writer(WrittenGraph())
    writer.graph.names.taken |= {*inputs, *outputs}
    for parameter, called in zip(function.params, inputs, strict=True):
        writer.names[parameter] = called
    results = writer.write(function.body, outputs)
    fields = _fields(function.ret_ty)
    takes = [_described(each.ty, called) for each, called in zip(function.params, inputs, strict=True)]
    gives = [_described(kind, called) for kind, called in zip(fields, results, strict=True)]
    model = helper.make_model(
        writer.graph.finish(name, takes, gives),
        producer_name="fusion",
        opset_imports=[helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
    )
    refusal = why_refused(model)
    if refusal:
        raise _unsupported("what was written", None, f"ONNX does not allow it: {refusal}")
    return model


def why_not_exported(call: relax.Call) -> str:
    """Return why no operator of ONNX is written for `call`, as far as its name tells; "" where one is."""
    name = call_name(call)
    return "" if name in CONVERTERS else f"ONNX has nothing for {_title(call, name)}"


@dataclass
class _Writer:
    """Writes bindings into a graph.

    Attributes:
        graph: The graph.
        names: What values are called.
    """

    graph: WrittenGraph
    names: dict[relax.Var, Names] = field(default_factory=dict)

    def write(self, body: relax.SeqExpr, outputs: Sequence[str]) -> list[str]:
        """Add what `body` computes, and return its results under the names of `outputs`."""
        bindings = Bindings.of(body)
        for binding in bindings.all:
            self.names[binding.var] = self._names_of(binding.value, binding.var)
        found = _flat(self._names_of(bindings.result, None))
        self._rename(found, outputs)
        return list(outputs)

    def _rename(self, found: Sequence[str], outputs: Sequence[str]) -> None:
        """Give values that nodes of this graph make the names of `outputs`, others that are called otherwise by way of
        nodes."""
        made = {output for node in self.graph.nodes for output in node.output}
        new: dict[str, str] = {}
        copies = []
        for name, output in zip(found, outputs, strict=True):
            if name in made and name not in new:
                new[name] = output
            elif name != output:
                copies.append((name, output))
        for node in self.graph.nodes:
            _replace(node, new)
        for name, output in copies:
            self.graph.emit("Identity", [new.get(name, name)], [output])

    def _names_of(self, value: relax.Expr, var: relax.Var | None) -> Names:
        """Return what a value is called, which has nodes then."""
        if isinstance(value, relax.Var):
            return self.names[value]
        if isinstance(value, GenericConst) and isinstance(value.value, tvm.runtime.Tensor):
            return self.graph.constant(as_numpy(value.value))
        if isinstance(value, relax.Tuple):
            return [self._names_of(item, None) for item in value.fields]
        if isinstance(value, relax.TupleGetItem):
            return self._names_of(value.tuple_value, None)[value.index]
        if isinstance(value, relax.If):
            return self._if(value, var)
        if isinstance(value, relax.Call):
            return self._call(value, var)
        raise _unsupported(type(value).__name__, var, "it is no tensor")

    def _call(self, call: relax.Call, var: relax.Var | None) -> Names:
        name = call_name(call)
        convert = CONVERTERS.get(name)
        if convert is None:
            raise _unsupported(_title(call, name), var, "ONNX has nothing for it")
        given = [argument for argument in call.args if _is_tensor(argument.ty)]
        kinds = [kind for argument in given for kind in _fields(argument.ty)]
        inputs = [called for argument in given for called in _flat(self._names_of(argument, None))]
        title = str(var.name) if var is not None else name
        kind = call.ty if var is None else var.ty
        try:
            made = convert(ExportedCall(self.graph, call, kind, title, inputs=tuple(inputs), kinds=tuple(kinds)))
        except Declined as reason:
            raise _unsupported(name, var, str(reason)) from reason
        if isinstance(made, str):
            return made
        return list(made) if isinstance(kind, relax.TupleType) else made[0]

    def _if(self, value: relax.If, var: relax.Var | None) -> Names:
        """A branch sees the values outside of it, as ONNX has it."""
        fields = _fields(value.ty)
        title = "branch" if var is None else str(var.name)
        bodies = {}
        for side, body in (("then_branch", value.true_branch), ("else_branch", value.false_branch)):
            inner = _Writer(self.graph.body(), dict(self.names))
            outputs = inner.write(body, [self.graph.names.make(f"{title}.{side}") for _ in fields])
            described = [_described(kind, output) for kind, output in zip(fields, outputs, strict=True)]
            bodies[side] = inner.graph.finish(side, [], described, weights=False)
        outputs = [self.graph.names.make(title) for _ in fields]
        self.graph.emit("If", [_flat(self._names_of(value.cond, None))[0]], outputs, **bodies)
        return list(outputs) if isinstance(value.ty, relax.TupleType) else outputs[0]


def _replace(node: object, new: dict[str, str]) -> None:
    """Rename values in a node and in its bodies."""
    for names in (node.input, node.output):  # type: ignore[attr-defined]
        names[:] = [new.get(name, name) for name in names]
    for attribute in node.attribute:  # type: ignore[attr-defined]
        for inner in attribute.g.node:
            _replace(inner, new)


def _is_tensor(kind: relax.Type) -> bool:
    """Whether a type is that of a tensor, or of a tuple of tensors."""
    if isinstance(kind, relax.TupleType):
        return all(_is_tensor(item) for item in kind.fields)
    return isinstance(kind, relax.TensorType)


def _fields(kind: relax.Type) -> list[relax.Type]:
    return [each for item in kind.fields for each in _fields(item)] if isinstance(kind, relax.TupleType) else [kind]


def _flat(names: Names) -> list[str]:
    return [names] if isinstance(names, str) else [each for item in names for each in _flat(item)]


def _described(kind: relax.Type, name: str) -> ValueInfoProto:
    if not isinstance(kind, relax.TensorType):
        raise _unsupported("a tuple", None, f"{name!r} is no tensor")
    try:
        element = element_type(dtype_of(kind))
    except Declined as reason:
        raise _unsupported("a tensor", None, f"{name!r}: {reason}") from reason
    dims = dims_of(kind.shape)
    extents = [None] * max(kind.ndim, 0) if dims is None else _named(kind, dims)
    return helper.make_tensor_value_info(name, element, extents)


def _named(kind: relax.Type, dims: Sequence[int | None]) -> list[int | str | None]:
    """Return extents, open ones by the names of their symbols."""
    symbols = (extent.name if isinstance(extent, tirx.Var) else None for extent in kind.shape.values)
    return [symbol if extent is None else extent for extent, symbol in zip(dims, symbols, strict=True)]


def _title(call: relax.Call, name: str) -> str:
    """Return what a call is of: where that is a function, which one."""
    if name.startswith("call_") and call.args:
        function = callee(call)
        if name == "call_tir":
            return f"our kernel {function.name_hint!r}"
        return f"{name} of {getattr(function, 'name_hint', None) or getattr(function, 'global_symbol', 'a function')}"
    return name or "a call of a function"


def _unsupported(operator: str, var: relax.Var | None, why: str) -> UnsupportedOperatorError:
    return UnsupportedOperatorError(
        "the model cannot be written as ONNX",
        where=operator if var is None else f"{operator} {str(var.name)!r}",
        why=why,
        hint="write it as Relax, or compile the model itself",
    )
