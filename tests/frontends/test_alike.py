"""Nodes like an earlier one are not looked at again, and what they become is what they would become alone."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper

from fusion.errors import InvalidModelError, ShapeError
from fusion.frontends import import_model
from fusion.frontends.onnx.alike import _READS_NO_VALUES, AlikeNodes, Findings
from fusion.frontends.onnx.infer import infer_types
from fusion.frontends.onnx.scope import ValueScope
from tests.frontends.models import branch, choose, make, node

OPSET = 20
RANDOM = np.random.default_rng(4)


def scope_of(shapes: Mapping[str, Sequence[int | None]], **constants: np.ndarray) -> ValueScope:
    kinds = {name: helper.make_tensor_type_proto(TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    scope = ValueScope(types=kinds)
    for name, array in constants.items():
        scope.add_constant(name, numpy_helper.from_array(array, name))
    return scope


def are_alike(one: onnx.NodeProto, other: onnx.NodeProto, scope: ValueScope, opset: int = OPSET) -> bool:
    """Return whether `one` of OPSET and `other` of `opset` are."""
    nodes = AlikeNodes()
    return nodes.find(one, OPSET, scope) is nodes.find(other, opset, scope)


def test_layers_are_alike() -> None:
    """Names and weights tell nothing of types."""
    scope = scope_of({"x": [2, 3], "y": [2, 3]}, w=np.ones(3, "float32"), v=np.zeros(3, "float32"))
    assert are_alike(node("Add", ["x", "w"], ["a"]), node("Add", ["y", "v"], ["b"]), scope)


def test_what_checks_and_inference_read_tells_nodes_apart() -> None:
    shapes = {"a": np.array([2, 3]), "b": np.array([3, 2]), "c": np.array([2, 3], "int32"), "d": np.array([2, 3])}
    scope = scope_of({"x": [2, 3], "y": [3, 2], "s": []}, w=np.ones((2, 3), "float32"), **shapes)
    softmax = node("Softmax", ["x"], ["z"], axis=0)
    assert not are_alike(softmax, node("Softmax", ["x"], ["z"], axis=1), scope)
    assert not are_alike(softmax, node("Softmax", ["y"], ["z"], axis=0), scope)
    assert not are_alike(softmax, node("Hardmax", ["x"], ["z"], axis=0), scope)
    assert not are_alike(softmax, softmax, scope, 12)
    assert not are_alike(node("Mul", ["x", "x"], ["z"]), node("Mul", ["x", "w"], ["z"]), scope)
    assert not are_alike(node("Clip", ["x", "s"], ["z"]), node("Clip", ["x", "", "s"], ["z"]), scope)
    assert not are_alike(node("Dropout", ["x"], ["z"]), node("Dropout", ["x"], ["z", "mask"]), scope)
    reshapes = [node("Reshape", ["x", name], ["z"]) for name in shapes]
    assert not are_alike(reshapes[0], reshapes[1], scope)
    assert not are_alike(reshapes[0], reshapes[2], scope)
    assert are_alike(reshapes[0], reshapes[3], scope)


def test_what_is_large_or_not_known_is_like_nothing() -> None:
    scope = scope_of({"x": [2, None], "y": [2000]}, w=np.arange(2000), t=np.array(["a"], object))
    reads = choose("x", ["z"], branch([], ["y"]), branch([], ["y"]))
    made = node("ConstantOfShape", ["y"], ["z"], value=helper.make_tensor("", TensorProto.FLOAT, [1], [2.0]))
    for each in (node("Relu", ["x"], ["z"]), node("Slice", ["y", "w", "w"], ["z"]), reads, made):
        assert not are_alike(each, each, scope)
    assert not are_alike(node("Identity", ["t"], ["z"]), node("Identity", ["t"], ["z"]), scope)


WEIGHTED: dict[str, tuple[tuple[int, ...], ...]] = {
    "BatchNormalization": ((2, 4, 3), (4,), (4,), (4,), (4,)),
    "Conv": ((2, 4, 5), (6, 4, 3), (6,)),
    "Gather": ((4, 3), (2,)),
    "Gemm": ((2, 4), (4, 3), (3,)),
    "LayerNormalization": ((2, 4), (4,), (4,)),
    "MatMul": ((2, 4), (4, 3)),
    "Where": ((4,), (4,), (4,)),
}


@pytest.mark.parametrize("op", sorted(_READS_NO_VALUES))
def test_values_of_weights_tell_nothing(op: str) -> None:
    shapes = WEIGHTED.get(op, ((2, 4), (4,)))
    kinds = {("Gather", 1): "int64", ("Where", 0): "bool"}
    told = []
    for value in (0, 1):
        weights = {f"x{at}": np.full(shape, value, kinds.get((op, at), "float32")) for at, shape in enumerate(shapes)}
        scope = scope_of({}, **weights)
        told.append(infer_types(node(op, list(weights), ["y"]), OPSET, scope, {}))
    assert told[0] == told[1] != {}


def layers(size: int) -> onnx.ModelProto:
    """Return two layers alike, with operators that are computed while importing, and a third of another width."""
    nodes, x = [], "x"
    weights = {"axis": np.array([0]), "low": np.float32(0)}
    for at, width in enumerate((4, 4, 6)):
        for name, shape in {"w": (4, width), "bias": (width,), "scale": (width,)}.items():
            weights[f"{name}{at}"] = RANDOM.standard_normal(shape, dtype="float32")
        weights |= {f"heads{at}": np.array([width // 2, 2]), f"rows{at}": np.array([size, width])}
        shape, rows, product, total, cut, normal, wanted, apart, turned, back, last = (f"v{at}_{n}" for n in range(11))
        nodes += [
            node("Shape", [x], [shape]),
            node("Gather", [shape, "axis"], [rows]),
            node("MatMul", [x, f"w{at}"], [product]),
            node("Add", [product, f"bias{at}"], [total]),
            node("Clip", [total, "low"], [cut]),
            node("LayerNormalization", [cut, f"scale{at}", f"bias{at}"], [normal]),
            node("Concat", [rows, f"heads{at}"], [wanted], axis=0),
            node("Reshape", [normal, wanted], [apart]),
            node("Transpose", [apart], [turned], perm=[1, 0, 2]),
            node("Transpose", [turned], [back], perm=[1, 0, 2]),
            node("Reshape", [back, f"rows{at}"], [last]),
        ]
        x = last
    return make(nodes, {"x": [size, 4]}, [x], weights)


@pytest.mark.parametrize("size", [0, 1, 3])
def test_a_model_is_what_it_is_with_each_node_looked_at(size: int, monkeypatch: pytest.MonkeyPatch) -> None:
    model = layers(size)
    found = import_model(model, strict=True)
    monkeypatch.setattr(AlikeNodes, "find", lambda *_: Findings())
    alone = import_model(model, strict=True)
    tvm.ir.assert_structural_equal(found.mod, alone.mod)
    assert found == replace(alone, mod=found.mod)


def test_a_node_that_is_like_none_before_is_still_refused() -> None:
    nodes = [node("Reshape", ["x", "right"], ["y"]), node("Reshape", ["y", "wrong"], ["z"])]
    model = make(nodes, {"x": [2, 3]}, ["z"], {"right": np.array([2, 3]), "wrong": np.array([2, 4])})
    with pytest.raises(ShapeError, match="z_node"):
        import_model(model)


def test_declarations_of_nodes_alike_are_looked_at() -> None:
    model = make([node("Relu", ["x"], ["y"]), node("Relu", ["y"], ["z"])], {"x": [2, 3]}, ["z"])
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.FLOAT16
    with pytest.raises(InvalidModelError, match="declared as float16"):
        import_model(model)
