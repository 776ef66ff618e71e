"""Which nodes are planned for ONNX Runtime, and that no path leaves one of their subgraphs and comes back."""

from __future__ import annotations

import random
from graphlib import TopologicalSorter

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from fusion.frontends import import_model
from fusion.frontends.onnx.plan_fallbacks import _between, _groups, _in_order, _Marks
from fusion.frontends.onnx.scope import ValueScope
from fusion.frontends.onnx.survey import Survey, survey
from fusion.frontends.onnx.weights import Weights
from tests.frontends.narrow import networks, quantized


def _survey(model: onnx.ModelProto) -> Survey:
    scope = ValueScope(types={value.name: value.type for value in model.graph.input})
    scope.add_weights(Weights.of(model.graph))
    return survey(model.graph.node, {"": 17, "com.microsoft": 1}, scope, {})


def _planned(graph: Survey) -> dict[int, int]:
    marked = _Marks(graph).marked
    _between(graph, marked)
    return _groups(graph, marked)


_PRODUCT = """
<ir_version: 8, opset_import: ["": 17]>
product (uint8[128, 256] x, TYPE[256, 256] given) => (int32[128, 256] y)
<TYPE[256, 256] w = {WEIGHTS}> {
  y = MatMulInteger(x, MATRIX)
}
"""
FOURS, PAIRS = (("uint8", "int8"), ("int16", "int16")), (("int16", "int16"),)


@pytest.mark.parametrize(
    ("dtype", "matrix", "products", "runs_here"),
    [
        ("int8", "w", FOURS, True),
        ("int8", "w", (), False),
        ("int8", "w", PAIRS, True),
        ("uint8", "w", FOURS, True),
        ("int8", "given", FOURS, False),
    ],
)
def test_products_of_bytes_stay_where_they_have_kernels(
    dtype: str, matrix: str, products: tuple[tuple[str, str], ...], runs_here: bool
) -> None:
    weights = ", ".join(["1"] * 256 * 256)
    text = _PRODUCT.replace("TYPE", dtype).replace("WEIGHTS", weights).replace("MATRIX", matrix)
    imported = import_model(onnx.parser.parse_model(text), byte_products=products)
    assert (not imported.fallbacks and imported.mod is not None) == runs_here


_CONVOLUTION = """
<ir_version: 8, opset_import: ["": 17]>
convolution (uint8[1, 64, 28, 28] x, float s, uint8 z) => (uint8[1, 64, 28, 28] y)
<int8[64, MEMBERS, SIZE, SIZE] w = {WEIGHTS}, int8 none = {0}> {
  y = QLinearConv<group = GROUPS, pads = [PAD, PAD, PAD, PAD]>(x, s, z, w, s, none, s, z)
}
"""


@pytest.mark.parametrize(
    ("groups", "size", "products", "runs_here"),
    [(1, 3, FOURS, True), (1, 3, (), False), (1, 3, PAIRS, False), (64, 5, FOURS, True), (2, 3, FOURS, False)],
)
def test_convolutions_of_bytes_stay_where_they_have_kernels(
    groups: int, size: int, products: tuple[tuple[str, str], ...], runs_here: bool
) -> None:
    """Those in groups are of float32, which holds the sums of 25 products, but not those of 288."""
    weights = ", ".join(["1"] * (64 * 64 // groups * size * size))
    named = {"MEMBERS": 64 // groups, "SIZE": size, "WEIGHTS": weights, "GROUPS": groups, "PAD": size // 2}
    text = _CONVOLUTION
    for name, value in named.items():
        text = text.replace(name, str(value))
    imported = import_model(onnx.parser.parse_model(text), byte_products=products)
    assert (not imported.fallbacks and imported.mod is not None) == runs_here


def _random(seed: int) -> onnx.ModelProto:
    """Return matmuls in float64 and float32, each of a few values before it."""
    choose, net = random.Random(seed), networks.Network("float32", seed)
    values = {"float32": [net.input([8, 8])], "float64": [net.input([8, 8], "float64")]}
    for _ in range(25):
        dtype, other = choose.sample(["float64", "float32"], 2)
        net.dtype = np.dtype(dtype)
        x, y = choose.choice(values[dtype][-4:]), choose.choice(values[dtype][-4:])
        kind = choose.choice(["MatMul", "Add", "Relu", "Cast"])
        if kind == "MatMul":
            values[dtype].append(net.op("MatMul", x, net.weight(8, 8)))
        elif kind == "Cast":
            element = onnx.helper.np_dtype_to_tensor_dtype(np.dtype(other))
            values[other].append(net.op("Cast", x, to=element))
        else:
            values[dtype].append(net.op(kind, x, y) if kind == "Add" else net.op(kind, x))
    return net.model(values["float32"][-1], values["float64"][-1])


@pytest.mark.parametrize("seed", range(40))
def test_no_path_comes_back(seed: int) -> None:
    graph = _survey(_random(seed))
    groups = _planned(graph)
    contracted: dict[int, set[int]] = {}
    for index, before in enumerate(graph.before):
        into = groups.get(index, -1 - index)
        contracted.setdefault(into, set()).update(groups.get(source, -1 - source) for source in before)
        contracted[into].discard(into)
    assert tuple(TopologicalSorter(contracted).static_order())  # raises where there is a circle
    order = list(_in_order(graph, groups))
    assert sorted(order) == list(range(len(graph.nodes)))
    place = {index: position for position, index in enumerate(order)}
    for index, before in enumerate(graph.before):
        assert all(place[source] < place[index] for source in before)
        ends = [place[other] for source in before for other in groups if groups.get(source) == groups[other]]
        assert index in groups or max(ends, default=-1) < place[index]


def test_a_residual_around_float32_ends_the_subgraph() -> None:
    net = networks.Network("float64")
    x = net.op("Relu", net.op("MatMul", net.input([8, 8]), net.weight(8, 8)))
    net.dtype = np.dtype("float32")
    wide = net.op("MatMul", net.op("Cast", x, to=TensorProto.FLOAT), net.weight(8, 8))
    net.dtype = np.dtype("float64")
    y = net.op("MatMul", net.op("Add", net.op("Cast", wide, to=TensorProto.DOUBLE), x), net.weight(8, 8))
    graph = _survey(net.model(y))
    groups = _planned(graph)
    names: dict[int, tuple[str, ...]] = {}
    for index, group in sorted(groups.items()):
        names[group] = (*names.get(group, ()), str(graph.nodes[index].op_type))
    assert list(names.values()) == [("MatMul", "Relu"), ("Add", "MatMul")]


def test_weights_stay_in_bytes() -> None:
    """ONNX Runtime makes one operator only of pairs that it sees, the weights' included."""
    model = quantized.static(networks.images())
    (data,) = import_model(model).subgraphs.values()
    weights = {tensor.data_type for tensor in onnx.load_from_string(data).graph.initializer if len(tensor.dims) == 4}
    assert weights == {TensorProto.UINT8}


def test_float32_is_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("surveyed")

    monkeypatch.setattr("fusion.frontends.onnx.plan_fallbacks.survey", fail)
    assert not import_model(networks.images()).fallbacks
