"""Sizes at which ONNX Runtime ends the process are kept from it where only a run knows them: its recurrences read a
batch and a sequence, and InstanceNormalization an image, that have no element; Scan divides by the number of elements
from the axis on that it reads along, unless that is the first; its blocked form of a pool divides by the number of
places of the window.

What is compiled for sizes is checked then; this is for what ONNX Runtime runs by itself: bodies of loops, and whole
models while their forms are compiled.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

from onnx import ModelProto, NodeProto, TensorProto, ValueInfoProto, helper, shape_inference

from backends.onnxruntime.check_operands import graphs, reading

_FULL: Mapping[str, tuple[int, ...]] = {"InstanceNormalization": (), "LSTM": (1,), "GRU": (0, 1)}
"""Operators, and the axes of their input that must have elements; () for all."""
_BLOCKED = frozenset({"MaxPool", "AveragePool"})
_SMALL = 1024
"""Elements of a constant that inference may read: shapes, and no weights."""

_Shapes = Mapping[str, tuple[int, ...]]


def check_sizes(model: ModelProto) -> ModelProto:
    """Return `model`, in which nodes fail where they have nothing to read, and pools whose window may have no place are
    not in ONNX Runtime's blocked form."""
    if not any(_may_end(node) for graph in graphs(model.graph) for node in graph.node):
        return model
    copy = ModelProto()
    copy.CopyFrom(model)
    known = _shapes(model)
    for number, graph in enumerate(graphs(copy.graph)):
        nodes = []
        for at, node in enumerate(graph.node):
            # What a body calls by the name of a tensor outside may be another.
            safe = not _may_end(node) or (number == 0 and _fits(node, known))
            nodes += [node] if safe else _checked(node, f"sized_{number}_{at}")
        del graph.node[:]
        graph.node.extend(nodes)
    return copy


def _may_end(node: NodeProto) -> bool:
    if node.domain or not node.input or not node.output:
        return False
    return node.op_type in _FULL or bool(_transposed(node)) or (node.op_type in _BLOCKED and _may_overhang(node))


def _transposed(node: NodeProto) -> dict[int, int]:
    """Return which inputs a Scan reads along another axis than the first, and that axis; one with more axes than inputs
    is none that ONNX Runtime loads."""
    given = {attribute.name: attribute for attribute in node.attribute}
    if node.op_type != "Scan" or "scan_input_axes" not in given:
        return {}
    read = range(len(node.input) - given["num_scan_inputs"].i, len(node.input))
    return {at: axis for at, axis in zip(read, given["scan_input_axes"].ints, strict=False) if axis}


def _may_overhang(node: NodeProto) -> bool:
    """Whether the window of a pool has no place in the smallest image: it overhangs that by its stride or more."""
    given = {attribute.name: attribute for attribute in node.attribute}

    def numbers(name: str, count: int, default: int) -> list[int]:
        values = list(given[name].ints) if name in given else []
        return [*values, *[default] * (count - len(values))]

    kernel = numbers("kernel_shape", 0, 1)
    rank = len(kernel)
    strides, dilations, pads = numbers("strides", rank, 1), numbers("dilations", rank, 1), numbers("pads", 2 * rank, 0)
    rule = given["auto_pad"].s if "auto_pad" in given else b""
    if rule.startswith(b"SAME") and set(dilations) <= {1}:
        return False
    if rule not in (b"", b"NOTSET"):
        pads = [0] * (2 * rank)
    return any(
        (kernel[axis] - 1) * dilations[axis] - pads[axis] - pads[axis + rank] >= strides[axis] for axis in range(rank)
    )


def _fits(node: NodeProto, known: _Shapes) -> bool:
    """Whether it is `known` that `node` has something to read, and the window of a pool places."""
    if transposed := _transposed(node):
        return all(_fills(known.get(node.input[at], ()), axis) for at, axis in transposed.items())
    sizes = known.get(node.output[0], (0,))[2:] if node.op_type in _BLOCKED else known.get(node.input[0], ())
    return bool(sizes) and 0 not in sizes


def _fills(sizes: tuple[int, ...], axis: int) -> bool:
    return bool(sizes) and 0 not in sizes[axis:]


def _shapes(model: ModelProto) -> dict[str, tuple[int, ...]]:
    """Return the shapes that follow from those of the inputs, which every run checks; a size that is not known is 0.

    What the model says of other tensors may be wrong.
    """
    graph = model.graph
    small = [tensor for tensor in graph.initializer if math.prod(tensor.dims) <= _SMALL]
    names = {value.name for value in graph.input} | {tensor.name for tensor in small}
    weights = [
        helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        for tensor in graph.initializer
        if tensor.name not in names
    ]
    outputs = [ValueInfoProto(name=value.name) for value in graph.output]
    plain = helper.make_graph(graph.node, "sizes", [*graph.input, *weights], outputs, small)
    try:
        inferred = shape_inference.infer_shapes(
            helper.make_model(plain, opset_imports=model.opset_import, ir_version=model.ir_version)
        ).graph
    except Exception:  # onnx raises errors of several kinds; ONNX Runtime refuses the model then, or knows better
        return {}
    values = (*inferred.input, *inferred.value_info, *inferred.output)
    return {
        value.name: tuple(dim.dim_value for dim in value.type.tensor_type.shape.dim)
        for value in values
        if value.type.tensor_type.HasField("shape")
    }


def _checked(node: NodeProto, name: str) -> list[NodeProto]:
    """`MaxPool(x)`  ->  `MaxPool(Reshape(x, Abs(Shape(x))))`, of which nothing is known when it is loaded, and of the
    others `LSTM(x, ...)`  ->  `LSTM(Reshape(x, [Shape(x)][int(batch == 0)]), ...)`, an index that is outside where it
    is 1; a Scan along an axis asks for the columns of `Flatten(x, axis)`."""
    nodes: list[NodeProto] = []

    def add(operator: str, *inputs: str, **attributes: object) -> str:
        output = f"{name}_{len(nodes)}"
        title = f"{output}: {node.op_type} {node.name!r} must have elements to read" if operator == "Gather" else ""
        nodes.append(helper.make_node(operator, list(inputs), [output], title, **attributes))
        return output

    def constant(*values: int) -> str:
        return add("Constant", value=helper.make_tensor("value", TensorProto.INT64, [len(values)], values))

    def filled(x: str, checked: str) -> str:
        shape = add("Shape", x)
        is_empty = add("Equal", add("ReduceProd", checked), constant(0))
        rows = add("Reshape", shape, constant(1, -1))
        sizes = add("Gather", rows, add("Reshape", add("Cast", is_empty, to=TensorProto.INT64), constant(1)))
        return add("Reshape", x, add("Reshape", sizes, constant(-1)))

    inputs = list(node.input)
    if transposed := _transposed(node):
        for at, axis in transposed.items():
            columns = add("Gather", add("Shape", add("Flatten", inputs[at], axis=axis)), constant(1))
            inputs[at] = filled(inputs[at], columns)
    elif axes := _FULL.get(node.op_type):
        inputs[0] = filled(inputs[0], add("Gather", add("Shape", inputs[0]), constant(*axes)))
    elif node.op_type in _FULL:
        inputs[0] = filled(inputs[0], add("Shape", inputs[0]))
    else:
        inputs[0] = add("Reshape", inputs[0], add("Abs", add("Shape", inputs[0])))
    return [*nodes, reading(node, inputs)]
