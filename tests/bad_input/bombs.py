"""Small models that would take all time or memory, were they computed while they are compiled; by name."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
Nodes = list[onnx.NodeProto]
BOMBS: dict[str, Callable[[], onnx.ModelProto]] = {}


def _bomb(make: Callable[[], onnx.ModelProto]) -> Callable[[], onnx.ModelProto]:
    BOMBS[make.__name__] = make
    return make


def node(op: str, inputs: list[str], outputs: list[str], **attributes: object) -> onnx.NodeProto:
    """Return a node of ONNX's own domain."""
    return helper.make_node(op, inputs, outputs, **attributes)


def model(nodes: Nodes, result: str = "y", kind: int = FLOAT, **weights: object) -> onnx.ModelProto:
    """Return a model from x[2] (float32) to `result`, of a shape that is not declared."""
    x = helper.make_tensor_value_info("x", FLOAT, [2])
    y = helper.make_tensor_value_info(result, kind, None)
    tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "bomb", [x], [y], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=9)


def _reduced(nodes: Nodes, large: str, **weights: object) -> onnx.ModelProto:
    """Return a model in which only one element of a large value is used."""
    last = [
        node("Reshape", [large, "minus"], ["flat"]),
        node("Gather", ["flat", "zero"], ["first"]),
        node("Cast", ["first"], ["float"], to=FLOAT),
        node("Add", ["x", "float"], ["y"]),
    ]
    return model([*nodes, *last], minus=np.array([-1]), zero=np.array(0), **weights)


@_bomb
def range_of_a_trillion() -> onnx.ModelProto:
    return _reduced([node("Range", ["a", "b", "c"], ["r"])], "r", a=0.0, b=1e12, c=1.0)


@_bomb
def doubling_by_concat() -> onnx.ModelProto:
    nodes = [node("Concat", [f"v{i}", f"v{i}"], [f"v{i + 1}"], axis=0) for i in range(40)]
    return _reduced(nodes, "v40", v0=np.ones(16, np.float32))


@_bomb
def squaring_by_broadcast() -> onnx.ModelProto:
    nodes = []
    for i in range(5):
        nodes += [
            node("Reshape", [f"v{i}", "column"], [f"c{i}"]),
            node("Add", [f"v{i}", f"c{i}"], [f"s{i}"]),
            node("Reshape", [f"s{i}", "row"], [f"v{i + 1}"]),
        ]
    return _reduced(nodes, "v5", v0=np.ones(64, np.float32), column=np.array([-1, 1]), row=np.array([-1]))


@_bomb
def constant_of_shape() -> onnx.ModelProto:
    return _reduced([node("ConstantOfShape", ["s"], ["c"])], "c", s=np.array([10**6, 10**6]))


@_bomb
def constant_of_shape_whose_size_overflows() -> onnx.ModelProto:
    return _reduced([node("ConstantOfShape", ["s"], ["c"])], "c", s=np.array([2**32, 2**32]))


@_bomb
def expand() -> onnx.ModelProto:
    return _reduced([node("Expand", ["o", "s"], ["c"])], "c", o=np.ones(1, np.float32), s=np.array([10**12]))


@_bomb
def expand_of_the_input() -> onnx.ModelProto:
    return _reduced([node("Expand", ["x", "s"], ["c"])], "c", s=np.array([10**12, 1]))


@_bomb
def tile() -> onnx.ModelProto:
    return _reduced([node("Tile", ["o", "s"], ["c"])], "c", o=np.ones(1, np.float32), s=np.array([10**12]))


@_bomb
def one_hot() -> onnx.ModelProto:
    nodes = [node("OneHot", ["i", "d", "v"], ["c"])]
    return _reduced(nodes, "c", i=np.arange(100), d=np.array(10**9), v=np.array([0, 1]))


@_bomb
def one_hot_of_the_input() -> onnx.ModelProto:
    nodes = [node("OneHot", ["x", "d", "v"], ["c"])]
    return _reduced(nodes, "c", d=np.array(10**10), v=np.array([0, 1]))


@_bomb
def pad() -> onnx.ModelProto:
    return _reduced([node("Pad", ["o", "p"], ["c"])], "c", o=np.ones(1, np.float32), p=np.array([10**10, 10**10]))


@_bomb
def pad_by_reflection() -> onnx.ModelProto:
    nodes = [node("Pad", ["x", "p"], ["c"], mode="reflect")]
    return _reduced(nodes, "c", p=np.array([10**10, 10**10]))


@_bomb
def resize() -> onnx.ModelProto:
    nodes = [node("Reshape", ["x", "s"], ["i"]), node("Resize", ["i", "", "f"], ["c"], mode="linear")]
    scales = np.array([1, 1, 1e6, 1e6], np.float32)
    return _reduced(nodes, "c", s=np.array([1, 1, 1, 2]), f=scales)


@_bomb
def eye_like() -> onnx.ModelProto:
    nodes = [node("ConstantOfShape", ["s"], ["z"]), node("EyeLike", ["z"], ["c"])]
    return _reduced(nodes, "c", s=np.array([300_000, 300_000]))


@_bomb
def random_normal() -> onnx.ModelProto:
    return _reduced([node("RandomNormal", [], ["c"], shape=[10**6, 10**6])], "c")


@_bomb
def einsum() -> onnx.ModelProto:
    vectors = [f"v{i}" for i in range(6)]
    nodes = [node("Einsum", vectors, ["c"], equation="a,b,c,d,e,f->abcdef")]
    return _reduced(nodes, "c", **{name: np.ones(1000, np.float32) for name in vectors})


@_bomb
def regular_expression_that_backtracks() -> onnx.ModelProto:
    nodes = [node("RegexFullMatch", ["t"], ["c"], pattern="(a+)+$"), node("Cast", ["c"], ["f"], to=FLOAT)]
    return _reduced(nodes, "f", t=np.array(["a" * 40 + "!"], dtype=object))


@_bomb
def loop_without_an_end() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    body = helper.make_graph(
        [node("Identity", ["cond"], ["again"]), node("Identity", ["acc"], ["next"])],
        "body",
        [value("i", INT64, []), value("cond", TensorProto.BOOL, []), value("acc", FLOAT, [])],
        [value("again", TensorProto.BOOL, []), value("next", FLOAT, [])],
    )
    nodes = [node("Loop", ["n", "t", "a"], ["c"], body=body)]
    return _reduced(nodes, "c", n=np.int64(10**18), t=np.array(True), a=np.float32(1))


@_bomb
def constant_in_a_branch() -> onnx.ModelProto:
    value = helper.make_tensor_value_info("b", FLOAT, None)
    large = helper.make_graph([node("ConstantOfShape", ["s"], ["b"])], "then", [], [value])
    small = helper.make_graph([node("Identity", ["x"], ["b"])], "else", [], [value])
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "half"], ["k"]),
        node("If", ["k"], ["c"], then_branch=large, else_branch=small),
    ]
    return _reduced(nodes, "c", s=np.array([10**6, 10**6]), half=np.float32(0.5))


@_bomb
def functions_that_call_the_last_twice() -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opset)]
    for i in range(1, 31):
        calls = [helper.make_node(f"F{i - 1}", [a], [b], domain="f") for a, b in (("a", "m"), ("m", "b"))]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], calls, opset))
    made = model([helper.make_node("F30", ["x"], ["y"], domain="f")])
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid("f", 1))
    return made


@_bomb
def functions_within_each_other() -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    functions = [helper.make_function("f", "F0", ["a"], ["b"], [node("Neg", ["a"], ["b"])], opset)]
    for i in range(1, 5000):
        call = [helper.make_node(f"F{i - 1}", ["a"], ["b"], domain="f")]
        functions.append(helper.make_function("f", f"F{i}", ["a"], ["b"], call, opset))
    made = model([helper.make_node("F4999", ["x"], ["y"], domain="f")])
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid("f", 1))
    return made


@_bomb
def a_function_that_calls_itself() -> onnx.ModelProto:
    opset = [helper.make_opsetid("", 20), helper.make_opsetid("f", 1)]
    made = model([helper.make_node("F", ["x"], ["y"], domain="f")])
    call = [helper.make_node("F", ["a"], ["b"], domain="f")]
    made.functions.append(helper.make_function("f", "F", ["a"], ["b"], call, opset))
    made.opset_import.append(helper.make_opsetid("f", 1))
    return made


@_bomb
def too_many_nodes() -> onnx.ModelProto:
    made = model([])
    made.graph.node.extend(node("Neg", [f"v{i}"], [f"v{i + 1}"]) for i in range(100_001))
    made.graph.node[0].input[0], made.graph.node[-1].output[0] = "x", "y"
    return made


@_bomb
def branches_within_each_other() -> onnx.ModelProto:
    value = helper.make_tensor_value_info
    graph = helper.make_graph([node("Neg", ["x"], ["b"])], "g", [], [value("b", FLOAT, [2])])
    for _ in range(28):
        inner = node("If", ["k"], ["b"], then_branch=graph, else_branch=graph if _ == 0 else _leaf())
        graph = helper.make_graph([inner], "g", [], [value("b", FLOAT, [2])])
    nodes = [
        node("ReduceMax", ["x"], ["m"], keepdims=0),
        node("Greater", ["m", "half"], ["k"]),
        node("If", ["k"], ["y"], then_branch=graph, else_branch=_leaf()),
    ]
    return model(nodes, half=np.float32(0.5))


def _leaf() -> onnx.GraphProto:
    value = helper.make_tensor_value_info("b", FLOAT, [2])
    return helper.make_graph([node("Exp", ["x"], ["b"])], "leaf", [], [value])


@_bomb
def weight_that_claims_too_much() -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])], w=np.ones(2, np.float32))
    made.graph.initializer[0].dims[:] = [10**5, 10**10]
    return made


@_bomb
def constant_that_claims_too_much() -> onnx.ModelProto:
    tensor = helper.make_tensor("w", FLOAT, [2], [1.0, 2.0])
    tensor.dims[:] = [10**15]
    return model([node("Constant", [], ["w"], value=tensor), node("Add", ["x", "w"], ["y"])])


@_bomb
def sparse_weight_that_claims_too_much() -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])])
    values, indices = helper.make_tensor("w", FLOAT, [1], [1.0]), helper.make_tensor("i", INT64, [1], [0])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [10**6, 10**9]))
    return made


@_bomb
def sparse_constant_that_claims_too_much() -> onnx.ModelProto:
    values, indices = helper.make_tensor("w", FLOAT, [1], [1.0]), helper.make_tensor("i", INT64, [1], [0])
    sparse = helper.make_sparse_tensor(values, indices, [10**6, 10**9])
    return model([node("Constant", [], ["w"], sparse_value=sparse), node("Add", ["x", "w"], ["y"])])


@_bomb
def sparse_index_outside() -> onnx.ModelProto:
    made = model([node("Add", ["x", "w"], ["y"])])
    values, indices = helper.make_tensor("w", FLOAT, [1], [1.0]), helper.make_tensor("i", INT64, [1], [10**12])
    made.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [2]))
    return made


@_bomb
def input_that_claims_too_much() -> onnx.ModelProto:
    made = model([node("Neg", ["x"], ["y"])])
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2**62
    return made


@_bomb
def product_of_large_matrices() -> onnx.ModelProto:
    nodes = [node("MatMul", [f"v{i}", "v0"], [f"v{i + 1}"]) for i in range(200)]
    return _reduced(nodes, "v200", v0=np.ones((512, 512), np.float32))


@_bomb
def many_updates() -> onnx.ModelProto:
    nodes = [node("ScatterElements", ["v", "i", "u"], ["c"])]
    updates = np.zeros(2_000_000, np.float32)
    return _reduced(nodes, "c", v=updates, i=np.arange(2_000_000), u=updates)


@_bomb
def mel_matrix() -> onnx.ModelProto:
    nodes = [node("MelWeightMatrix", ["b", "d", "r", "l", "u"], ["c"])]
    sizes = {"b": np.int64(10**6), "d": np.int64(10**6), "r": np.int64(16000)}
    return _reduced(nodes, "c", **sizes, l=np.float32(0), u=np.float32(8000))


@_bomb
def hann_window() -> onnx.ModelProto:
    return _reduced([node("HannWindow", ["n"], ["c"])], "c", n=np.int64(10**12))
