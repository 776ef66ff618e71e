"""Models that break ONNX's letter and that ONNX Runtime runs: so does fusion, with the same numbers."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import fusion
from fusion import errors
from fusion.frontends import import_model
from tests.frontends.against_onnxruntime import check
from tests.frontends.models import branch, choose, make, mlp, node

X = np.random.default_rng(0).standard_normal((4, 8), dtype=np.float32)
W = np.random.default_rng(1).standard_normal((8, 3), dtype=np.float32)


def _softmax(*imports: tuple[str, int], domain: str = "") -> onnx.ModelProto:
    """A softmax of all elements before operator set 13, of rows since."""
    model = make([helper.make_node("Softmax", ["x"], ["y"], domain=domain)], {"x": [2, 4, 8]}, ["y"])
    del model.opset_import[:]
    model.opset_import.extend(helper.make_opsetid(*entry) for entry in imports)
    return model


@pytest.mark.parametrize("domain", ["", "ai.onnx"])
@pytest.mark.parametrize(
    "imports",
    [
        [("ai.onnx", 11)],
        [("", 13), ("", 11)],
        [("", 11), ("ai.onnx", 13)],
        [("ai.onnx", 13), ("", 11)],
        [("ai.onnx.ml", 3)],
    ],
)
def test_names_and_versions_of_the_domain(imports: list[tuple[str, int]], domain: str) -> None:
    check(_softmax(*imports, domain=domain), {"x": X.reshape(2, 2, 8).repeat(2, axis=1)})


def test_no_version_of_any_domain() -> None:
    with pytest.raises(errors.InvalidModelError, match="opset_import"):
        fusion.compile(_softmax())


def test_domains_that_are_not_imported() -> None:
    fused = helper.make_node("Gelu", ["x"], ["h"], domain="com.microsoft")
    norm = helper.make_node("Normalizer", ["h"], ["y"], domain="ai.onnx.ml", norm="L2")
    check(make([fused, norm], {"x": [4, 8]}, ["y"]), {"x": X}, fallbacks=["Normalizer"])


def test_the_other_name_of_the_domain_in_branches() -> None:
    """ONNX Runtime knows it outside of branches only."""
    nodes = [helper.make_node(op, ["x"], [op], domain="ai.onnx") for op in ("Neg", "Exp")]
    then, other = (branch([item], [item.op_type]) for item in nodes)
    model = make([choose("c", ["y"], then, other)], {"x": [4, 8]}, ["y"])
    model.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    module = fusion.compile(model)
    np.testing.assert_allclose(module(X, np.array(True))[0], -X)


def _two_of_one_weight(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(W * 2, "w"))


def _weight_without_a_name(model: onnx.ModelProto) -> None:
    model.graph.initializer.append(numpy_helper.from_array(W, ""))


def _output_without_a_type(model: onnx.ModelProto) -> None:
    model.graph.output[0].ClearField("type")


def _output_twice(model: onnx.ModelProto) -> None:
    model.graph.output.append(model.graph.output[0])


def _input_and_weight_as_outputs(model: onnx.ModelProto) -> None:
    model.graph.output.extend(helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in "xw")


def _value_of_another_shape(model: onnx.ModelProto) -> None:
    model.graph.value_info.append(helper.make_tensor_value_info("h", TensorProto.FLOAT, [7, 7, 7]))


def _unread(model: onnx.ModelProto) -> None:
    model.graph.node.append(node("Exp", ["x"], ["nobody"]))
    model.graph.input.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, [3]))


def _nan(model: onnx.ModelProto) -> None:
    weight = W.copy()
    weight[1, 1] = np.nan
    model.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight, "w"))


@pytest.mark.parametrize(
    ("change", "note"),
    [
        (_two_of_one_weight, "onnx's checker says: w initializer name is not unique"),
        (_weight_without_a_name, "onnx's checker says: Tensor initializers must have a non-empty name"),
        (_output_without_a_type, "onnx's checker says: Field 'type' of 'value_info' is required but missing."),
        (_output_twice, ""),
        (_input_and_weight_as_outputs, ""),
        (_value_of_another_shape, ""),
        (_unread, ""),
        (_nan, "weight 'w' holds NaN, 1 of 24 elements"),
    ],
)
def test_what_the_checker_refuses_or_may_surprise(change: Callable[[onnx.ModelProto], None], note: str) -> None:
    model = mlp()
    change(model)
    module = check(model, {"x": X, "u": np.zeros(3, np.float32)} if change is _unread else {"x": X})
    said = [line for form in module.specializations for line in form.notes if "checker" in line or "NaN" in line]
    assert said == ([note] if note else [])
    assert note in module.explain()


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_versions_of_the_format(version: int) -> None:
    """Before version 4, the letter wants weights to be inputs too; before version 3, no versions of operators."""
    model = mlp()
    model.ir_version = version
    check(model, {"x": X})


def test_sizes_of_one_name() -> None:
    """ONNX Runtime compares no sizes of one name, so that those that differ broadcast or are joined."""
    nodes = [node("Add", ["x", "z"], ["y"]), node("Concat", ["x", "z"], ["joined"], axis=0)]
    model = make(nodes, {"x": ["N", 8], "z": ["N", 8]}, ["y", "joined"])
    check(model, {"x": X, "z": X[:1]})
    model.graph.input.append(helper.make_tensor_value_info("u", TensorProto.FLOAT, ["N"]))
    with pytest.raises(errors.ShapeError, match="'u'") as caught:
        import_model(model, {"x": (4, 8), "z": (1, 8)})
    assert caught.value.why == "dimension 0 (N) is given as 1 and 4"


def test_refused_here_and_there() -> None:
    """The checker's complaint stays an error where ONNX Runtime refuses too."""
    unknown = mlp()
    unknown.graph.node[0].attribute.append(helper.make_attribute("nonsense", 3))
    with pytest.raises(errors.InvalidModelError, match="nonsense"):
        fusion.compile(unknown)


@pytest.mark.parametrize("name", ["h", "y"])
def test_another_element_type_is_declared(name: str) -> None:
    model = mlp()
    declared = helper.make_tensor_value_info(name, TensorProto.INT64, None)
    (model.graph.value_info.append if name == "h" else model.graph.output[0].CopyFrom)(declared)
    with pytest.raises(errors.InvalidModelError, match=f"'{name}' is declared as int64 and computed as float32"):
        fusion.compile(model)


def test_an_input_without_a_type() -> None:
    model = mlp()
    model.graph.input[0].ClearField("type")
    with pytest.raises(errors.InvalidModelError, match="input 'x' has no type"):
        fusion.compile(model)


def test_operators_of_onnxruntime_in_the_domain_of_onnx() -> None:
    affine = [node("Affine", ["x"], ["y"], alpha=2.0, beta=1.0)]
    check(make(affine, {"x": [4, 8]}, ["y"], opset=1), {"x": X}, fallbacks=["Affine"])
    with pytest.raises(errors.UnsupportedOperatorError, match="Affine"):
        fusion.compile(make(affine, {"x": [4, 8]}, ["y"], opset=11))
