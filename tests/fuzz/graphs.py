"""Models of one node, and of a few, over every operator that a seed can choose."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.fuzz.case import Case, Values
from tests.fuzz.draw import Draw, Operand, element_type, type_proto
from tests.fuzz.engines import run_onnxruntime
from tests.fuzz.operators import ROWS
from tests.fuzz.spoil import spoil

OLDEST = 7
"""The oldest operator set that ONNX Runtime promises to run; the generator goes below at times."""


@dataclass
class Maker:
    """A graph in the making.

    Attributes:
        opset, opsets: Of the standard operators, and of all domains.
        odd: Whether numbers include NaN, infinities and the limits of their types.
        made: What ONNX Runtime computed for the tensors so far.
        kinds: What an input is, where it is no tensor.
        fixed: The share of operands that are constants of the model.
        random: Whether its results are left to chance.
    """

    rng: np.random.Generator
    opset: int
    opsets: dict[str, int]
    odd: bool
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    inputs: Values = field(default_factory=dict)
    kinds: dict[str, str] = field(default_factory=dict)
    constants: Values = field(default_factory=dict)
    made: Values = field(default_factory=dict)
    fixed: float = 0.35
    random: bool = False

    def chance(self, share: float) -> bool:
        return bool(self.rng.random() < share)


def make_case(seed: int) -> Case:
    """Return the case of `seed`: a node of an operator, or two to eight that read each other."""
    rng = np.random.default_rng([seed, 1])
    domain, operator = list(ROWS)[int(rng.integers(len(ROWS)))]
    version = choose_opset(rng, domain, operator)
    opsets = {"": version if domain == "" else newest(""), **({domain: version} if domain else {})}
    maker = Maker(rng, opsets[""], opsets, odd=bool(rng.random() < 0.3))
    spoiled = maker.chance(0.2)
    wanted = 1 if spoiled or maker.chance(0.6) else int(rng.integers(2, 9))
    note = add_node(maker, domain, operator, spoiled)
    for _ in range(wanted - 1):
        if not maker.made:
            break
        add_node(maker, *_next(rng, opsets))
    return finished(maker, "graphs", seed, note)


def finished(maker: Maker, kind: str, seed: int, note: str = "") -> Case:
    """Return the graph as a case."""
    return Case(kind, seed, _model(maker).SerializeToString(), maker.inputs, note, maker.random)


@lru_cache
def newest(domain: str) -> int:
    """Return the newest operator set of `domain` that ONNX Runtime runs."""
    for version in range(onnx.defs.onnx_opset_version() if domain == "" else 10, 0, -1):
        value = helper.make_tensor_value_info("x", 1, [1])
        graph = helper.make_graph(
            [helper.make_node("Identity", ["x"], ["y"])], "g", [value], [helper.make_tensor_value_info("y", 1, [1])]
        )
        opsets = [helper.make_opsetid(domain, version)]
        if domain:
            opsets.append(helper.make_opsetid("", newest("")))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
        if run_onnxruntime(model, {"x": np.ones(1, np.float32)}).status == "ran":
            return version
    return 1


@lru_cache
def versions(domain: str, operator: str) -> list[int]:
    """Return the operator sets that changed `operator`, the newest last."""
    schemas = [s for s in onnx.defs.get_all_schemas_with_history() if (s.domain, s.name) == (domain, operator)]
    return sorted(s.since_version for s in schemas if not s.deprecated)


def schema(domain: str, operator: str, version: int) -> onnx.defs.OpSchema | None:
    """Return the schema in force at `version`, or None where there is none yet or no more."""
    try:
        found = onnx.defs.get_schema(operator, version, domain)
    except onnx.defs.SchemaError:
        return None
    return None if found.deprecated else found


def choose_opset(rng: np.random.Generator, domain: str, operator: str) -> int:
    """Return an operator set that has `operator`: half of the time the newest, else one of any of its forms."""
    last = newest(domain)
    known = [v for v in versions(domain, operator) if v <= last] or versions(domain, operator)[:1]
    since = known[-1] if rng.random() < 0.5 else known[int(rng.integers(len(known)))]
    fit = [
        v for v in range(since, max(last, since) + 1) if (s := schema(domain, operator, v)) and s.since_version == since
    ]
    modern = [v for v in fit if v >= OLDEST] if domain == "" and rng.random() < 0.9 else fit
    choices = modern or fit
    return choices[-1] if rng.random() < 0.5 else int(choices[int(rng.integers(len(choices)))])


def _next(rng: np.random.Generator, opsets: dict[str, int]) -> tuple[str, str]:
    """Return another operator of the model's operator sets."""
    while True:
        domain, operator = list(ROWS)[int(rng.integers(len(ROWS)))]
        if domain == "" and schema(domain, operator, opsets[""]) is not None:
            return domain, operator


def add_node(maker: Maker, domain: str, operator: str, spoiled: bool = False) -> str:
    """Add a node; unless it is the first, drop it if ONNX Runtime does not run it. Return what was done to spoil it."""
    found = schema(domain, operator, maker.opsets[domain])
    if found is None:
        found = onnx.defs.get_schema(operator, max(versions(domain, operator)), domain)
    draw = Draw(maker.rng, found, maker.odd, maker.made if maker.nodes else {})
    ROWS[domain, operator](draw)
    note = spoil(draw) if spoiled else ""
    outputs = _output_names(draw, len(maker.nodes))
    names = [
        _name_operand(maker, len(maker.nodes), position, draw) for position in range(max(draw.inputs, default=-1) + 1)
    ]
    while names and not names[-1]:
        names.pop()
    node = helper.make_node(operator, names, outputs, name=f"{operator}_{len(maker.nodes)}", domain=domain)
    node.attribute.extend(_attribute(draw, name, value) for name, value in sorted(draw.attributes.items()))
    _enter(maker, node, draw)
    maker.random |= draw.random
    return note


def _attribute(draw: Draw, name: str, value: Any) -> onnx.AttributeProto:
    declared = draw.schema.attributes.get(name)
    empty = isinstance(value, list) and not value
    return helper.make_attribute(
        name, value, attr_type=int(declared.type.value) if empty and declared is not None else None
    )


def _output_names(draw: Draw, number: int) -> list[str]:
    low, high = draw.schema.min_output, draw.schema.max_output
    count = draw.outputs if draw.outputs is not None else max(low, 1)
    count = min(count, high)
    names = [f"v{number}_{place}" for place in range(count)]
    return [("" if low <= place < count - 1 and draw.chance(0.1) else name) for place, name in enumerate(names)]


def _name_operand(maker: Maker, number: int, position: int, draw: Draw) -> str:
    """Return the name of an operand, which is made an input or a constant of the model first."""
    operand = draw.inputs.get(position, Operand(None, kind=""))
    if operand.kind == "" or operand.name:
        return operand.name
    name = f"x{number}_{position}"
    fixed = maker.fixed > 0 and (operand.fixed if operand.fixed is not None else maker.chance(maker.fixed))
    if fixed and operand.kind == "tensor":
        maker.constants[name] = operand.value
    else:
        maker.inputs[name] = operand.value
        maker.kinds[name] = operand.kind
    return name


def _enter(maker: Maker, node: onnx.NodeProto, draw: Draw) -> None:
    """Add `node` and what it computes, which is asked of ONNX Runtime."""
    fresh = {name for name in node.input if name not in maker.made}
    maker.nodes.append(node)
    given = {
        name: value for name, value in {**maker.made, **maker.inputs, **maker.constants}.items() if name in node.input
    }
    alone = _model(Maker(maker.rng, maker.opset, maker.opsets, maker.odd, [node], given, maker.kinds), plain=True)
    ran = run_onnxruntime(alone, given)
    usable = ran.status == "ran" and not draw.random
    if len(maker.nodes) > 1 and not usable:
        maker.nodes.pop()
        for name in fresh:
            maker.inputs.pop(name, None)
            maker.constants.pop(name, None)
        return
    if ran.status == "ran":
        maker.made.update(ran.values)


def _model(maker: Maker, plain: bool = False) -> onnx.ModelProto:
    """Return the graph with its inputs and constants declared; `plain` leaves nothing to chance."""
    read = {name for node in maker.nodes for name in node.input}
    produced = [name for node in maker.nodes for name in node.output if name]
    ends = [name for name in produced if name not in read or (not plain and maker.chance(0.2))]
    old = not plain and maker.chance(0.05)
    inputs = [_declare(maker, name, value, plain) for name, value in maker.inputs.items()]
    constants = [_constant(name, value) for name, value in maker.constants.items()]
    if old or (not plain and maker.chance(0.05)):
        inputs += [helper.make_value_info(name, type_proto(v, shape=v.shape)) for name, v in maker.constants.items()]
    untyped = [onnx.ValueInfoProto(name=name) for name in ends]
    graph = helper.make_graph(maker.nodes, "fuzz", inputs, untyped, constants)
    opsets = [helper.make_opsetid(domain, version) for domain, version in maker.opsets.items()]
    ir_version = 3 if old else min(helper.find_min_ir_version_for(opsets, ignore_unknown=True), 12)
    model = helper.make_model(graph, opset_imports=opsets, ir_version=max(ir_version, 3 if old else 4))
    if not plain:
        types = _inferred(model)
        declared = [_output(maker, name, types) for name in ends]
        del model.graph.output[:]
        model.graph.output.extend(declared)
    return model


def _inferred(model: onnx.ModelProto) -> dict[str, onnx.ValueInfoProto]:
    """Return what onnx infers of the outputs, which tells the types of those that ONNX Runtime does not make."""
    try:
        outputs = onnx.shape_inference.infer_shapes(model).graph.output
        return {value.name: value for value in outputs if value.type.WhichOneof("value")}
    except Exception:  # a node that breaks its schema has no types
        return {}


def _declare(maker: Maker, name: str, value: Any, plain: bool) -> onnx.ValueInfoProto:
    kind = maker.kinds.get(name, "tensor")
    if kind != "tensor" or isinstance(value, list):
        return helper.make_value_info(name, type_proto(value, kind))
    shape: Any = list(value.shape)
    if not plain and maker.chance(0.1):
        shape = [f"{name}_{axis}" if maker.chance(0.5) else extent for axis, extent in enumerate(shape)]
    return helper.make_value_info(name, type_proto(value, shape=shape))


def _constant(name: str, value: np.ndarray) -> onnx.TensorProto:
    if value.dtype.kind in "OUS":
        return helper.make_tensor(
            name, element_type(value.dtype), value.shape, [str(word).encode() for word in value.ravel()]
        )
    return numpy_helper.from_array(value, name)


def _output(maker: Maker, name: str, types: dict[str, onnx.ValueInfoProto]) -> onnx.ValueInfoProto:
    """Declare an output by what ONNX Runtime made of it: often without a shape, rarely with nothing at all."""
    value, inferred = maker.made.get(name), types.get(name)
    if maker.chance(0.01):
        return onnx.ValueInfoProto(name=name)
    tensor = inferred is None or inferred.type.WhichOneof("value") in ("tensor_type", None)
    if isinstance(value, np.ndarray) and tensor:
        return helper.make_value_info(name, type_proto(value, shape=value.shape if maker.chance(0.4) else None))
    return onnx.ValueInfoProto(name=name) if inferred is None else inferred
