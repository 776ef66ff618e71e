"""What the frontends make of models that are good."""

from __future__ import annotations

from functools import partial

import numpy as np
import onnx
import pytest
import tvm
from onnx import TensorProto, helper, numpy_helper
from onnxruntime import InferenceSession
from tvm import relax
from tvm.ir import GenericConst
from tvm.script import ir as I
from tvm.script import relax as R

from fusion import errors
from fusion.frontends import computing_made, import_model, importer, read_signature
from fusion.frontends.onnx.checks.schema import breaches_of_the_schema
from fusion.frontends.onnx.infer import schema_of
from fusion.frontends.onnx.node import Node
from fusion.frontends.onnx.scope import ValueScope
from fusion.structural import find
from tests.frontends.models import make, mlp, node
from tests.frontends.run import run


def _calls(mod: tvm.IRModule) -> list[str]:
    names: list[str] = []

    def visit(expr: relax.Expr) -> None:
        if isinstance(expr, relax.Call) and hasattr(expr.op, "name"):
            names.append(str(expr.op.name))

    relax.analysis.post_order_visit(mod["main"], visit)
    return names


def test_signature_and_names() -> None:
    imported = import_model(mlp())
    assert [(s.name, s.shape, s.dtype) for s in imported.inputs] == [("x", (4, 8), "float32")]
    assert [(s.name, s.shape, s.dtype) for s in imported.outputs] == [("y", (4, 3), "float32")]
    names = [binding.var.name for binding in imported.mod["main"].body.blocks[0].bindings]
    assert names[:2] == ["h", "y"]


def test_clip_is_one_plain_operator() -> None:
    low, high = np.float32(0), np.float32(6)
    model = make(
        [node("Clip", ["x", "low", "high"], ["y"])],
        {"x": [3]},
        ["y"],
        {"low": np.asarray(low), "high": np.asarray(high)},
    )
    assert _calls(import_model(model).mod) == ["relax.clip"]


def test_shape_computations_are_folded() -> None:
    """Flatten as exporters write it: Shape, Gather, Concat, Reshape."""
    model = make(
        [
            node("Shape", ["x"], ["s"]),
            node("Gather", ["s", "zero"], ["n"]),
            node("Unsqueeze", ["n", "axis"], ["n1"]),
            node("Concat", ["n1", "rest"], ["to"], axis=0),
            node("Reshape", ["x", "to"], ["y"]),
        ],
        {"x": ["batch", 2, 3]},
        ["y"],
        {"zero": np.asarray(0), "axis": np.asarray([0]), "rest": np.asarray([-1])},
    )
    imported = import_model(model, {"x": (5, 2, 3)})
    assert imported.outputs[0].shape == (5, 6)
    assert imported.fallbacks == ()
    assert _calls(imported.mod) == ["relax.reshape"]


def test_result_of_which_onnx_infers_no_type() -> None:
    gelu = helper.make_node("Gelu", ["x"], ["h"], domain="com.microsoft")
    imported = import_model(make([gelu, node("Neg", ["h"], ["y"])], {"x": [2]}, ["y"], com_microsoft=1), strict=True)
    np.testing.assert_allclose(run(imported, np.array([1, -1], np.float32))[0], [-0.841345, 0.158655], rtol=1e-5)


def test_neighbouring_fallback_nodes_share_a_subgraph() -> None:
    """x -> Det -> Det is one subgraph; a native node between two of them parts them, and no cycle comes of it."""
    x = {"x": [3, 2, 2]}
    model = make(
        [
            node("Relu", ["x"], ["r"]),
            node("Det", ["r"], ["d"]),
            node("Det", ["x"], ["e"]),
            node("Add", ["d", "e"], ["y"]),
        ],
        x,
        ["y"],
    )
    assert len(import_model(model).subgraphs) == 2
    chain = make(
        [
            node("Det", ["x"], ["d"]),
            node("DynamicQuantizeLinear", ["d"], ["q", "s", "z"]),
            node("Det", ["x"], ["e"]),
            node("Neg", ["s"], ["y"]),
        ],
        x,
        ["y"],
    )
    values = np.random.default_rng(1).standard_normal((3, 2, 2), dtype=np.float32)
    imported = import_model(model)
    (found,) = run(imported, values)
    expected = np.linalg.det(np.maximum(values, 0)) + np.linalg.det(values)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    assert all(item.op == "Det" for item in import_model(chain).fallbacks)


def test_a_subgraph_returns_what_is_read_outside_alone() -> None:
    """What the last node of a subgraph reads of it stays there, though that is translated last."""
    nodes = [node("Det", ["x"], ["d"]), node("Det", ["d"], ["e"]), node("Neg", ["e"], ["y"])]
    for model in (make(nodes[:2], {"x": [2, 2, 2, 2]}, ["e"]), make(nodes, {"x": [2, 2, 2, 2]}, ["y"])):
        (data,) = import_model(model).subgraphs.values()
        assert [value.name for value in onnx.ModelProto.FromString(data).graph.output] == ["e"]


def test_data_dependent_shapes_stay_in_the_fallback_and_run() -> None:
    """What follows NonZero has no static shape; the model still runs."""
    model = make(
        [node("NonZero", ["x"], ["n"]), node("Cast", ["n"], ["f"], to=1), node("Neg", ["f"], ["y"])], {"x": [4]}, ["y"]
    )
    imported = import_model(model)
    assert imported.outputs[0].shape == (1, None)
    (found,) = run(imported, np.array([0, 2, 0, 3], dtype=np.float32))
    np.testing.assert_array_equal(found, [[-1, -3]])


def test_model_local_function_is_inlined() -> None:
    model = make([helper.make_node("Twice", ["x"], ["y"], domain="mine")], {"x": [2]}, ["y"], mine=1)
    model.functions.append(
        helper.make_function(
            "mine", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], [helper.make_opsetid("", 20)]
        )
    )
    assert _calls(import_model(model).mod) == ["relax.add"]


def test_strings_make_the_whole_model_one_subgraph() -> None:
    graph = helper.make_graph(
        [helper.make_node("StringConcat", ["a", "b"], ["y"])],
        "strings",
        [helper.make_tensor_value_info(name, TensorProto.STRING, [1]) for name in "ab"],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [1])],
    )
    imported = import_model(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10))
    assert imported.mod is None
    assert len(imported.subgraphs) == 1
    (found,) = run(imported, np.array(["a"], dtype=object), np.array(["b"], dtype=object))
    assert found.tolist() == ["ab"]


def test_weights_listed_as_inputs_are_weights() -> None:
    """Before IR version 4, every initializer was a graph input too."""
    model = mlp()
    model.graph.input.append(helper.make_tensor_value_info("w", TensorProto.FLOAT, [8, 3]))
    assert [spec.name for spec in import_model(model).inputs] == ["x"]


def test_imports_share_the_tensors_of_constants() -> None:
    """Paddle writes weights as nodes: imports at other sizes neither read nor copy them again."""
    held = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    model = make([node("Constant", [], ["w"], value=held), node("Add", ["x", "w"], ["y"])], {"x": ["n", 3]}, ["y"])
    read = importer(model, strict=False)
    computing = computing_made(read)
    assert computing is not None
    imported = (read({"x": (2, 3)}), read({"x": (5, 3)}), computing({"x": (5, 3)}))
    (first,), *others = (_constants(each.mod) for each in imported)
    assert all(first.same_as(other) for (other,) in others)
    x = np.ones((2, 3), np.float32)
    np.testing.assert_array_equal(run(import_model(model, {"x": (2, 3)}), x)[0], x + np.arange(3))


def test_a_constant_that_is_declared_otherwise_is_refused() -> None:
    held = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    model = make([node("Constant", [], ["w"], value=held), node("Add", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y"])
    model.graph.value_info.append(helper.make_tensor_value_info("w", TensorProto.INT64, [3]))
    with pytest.raises(errors.InvalidModelError):
        import_model(model)


def test_a_constant_may_be_what_a_model_returns() -> None:
    held = numpy_helper.from_array(np.arange(3, dtype=np.float32), "w")
    model = make([node("Constant", [], ["w"], value=held), node("Add", ["x", "w"], ["y"])], {"x": [2, 3]}, ["y", "w"])
    _, returned = run(import_model(model), np.ones((2, 3), np.float32))
    np.testing.assert_array_equal(returned, np.arange(3))


def _constants(mod: tvm.IRModule) -> list[tvm.runtime.Tensor]:
    return [constant.value for constant in find(mod["main"], GenericConst)]


def test_sparse_weight() -> None:
    model = mlp()
    dense = np.zeros((8, 3), dtype=np.float32)
    dense[[1, 4], [2, 0]] = [3, 5]
    values = numpy_helper.from_array(np.array([3, 5], dtype=np.float32), "w")
    indices = numpy_helper.from_array(np.array([[1, 2], [4, 0]], dtype=np.int64), "w_indices")
    del model.graph.initializer[:]
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, indices, [8, 3]))
    x = np.random.default_rng(2).standard_normal((4, 8), dtype=np.float32)
    np.testing.assert_allclose(run(import_model(model), x)[0], np.maximum(x @ dense, 0), rtol=1e-5)


@I.ir_module
class _Relax:
    @R.function
    def main(x: R.Tensor(("n", 4), "float32")) -> R.Tensor(("n", 4), "float32"):
        with R.dataflow():
            y = R.nn.relu(x)
            R.output(y)
        return y


def test_relax_module() -> None:
    assert read_signature(_Relax)[0][0].shape == (None, 4)
    assert import_model(_Relax, {"x": (3, 4)}).outputs[0].shape == (3, 4)
    for shapes in ({}, {"x": (3,)}, {"x": (3, 5)}, {"z": (3, 4)}):
        with pytest.raises(errors.ShapeError):
            import_model(_Relax, shapes)
    with pytest.raises(errors.InvalidModelError):
        import_model(tvm.IRModule({}))


@pytest.mark.filterwarnings("ignore")
def test_torch_program() -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.ReLU())
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0))
    expected = module(x).detach().numpy()
    for model in ((module, (x,)), torch.export.export(module, (x,))):
        imported = import_model(model)
        assert read_signature(model)[0] == imported.inputs
        np.testing.assert_allclose(run(imported, x.numpy())[0], expected, rtol=1e-5, atol=1e-6)
    with pytest.raises(errors.OptionError):
        import_model(module)


@pytest.mark.parametrize(("opset", "operator"), [(9, "Upsample"), (10, "Resize"), (17, "Resize"), (20, "Resize")])
@pytest.mark.parametrize("rows", [10, 30, 100, 7])
def test_scales_say_sizes_in_float32(opset: int, operator: str, rows: int) -> None:
    """0.7 of 30 rows are 21: onnx's inference rounds 20.9999996 down."""
    scale = 1.1 if operator == "Upsample" else 0.7
    given, held = ["x", "", "scales"] if opset > 10 else ["x", "scales"], np.float32([1, 1, scale, scale])
    nodes = [node(operator, given, ["y"], mode="nearest")]
    model = make(nodes, {"x": [1, 1, rows, 20]}, ["y"], {"scales": held}, opset)
    x = np.arange(20 * rows, dtype=np.float32).reshape(1, 1, rows, 20)
    (wanted,) = InferenceSession(model.SerializeToString()).run(None, {"x": x})
    np.testing.assert_array_equal(run(import_model(model), x)[0], wanted)


def test_an_operator_is_known_from_its_registration_on() -> None:
    late = helper.make_node("Late", ["x"], ["y"], domain="tests.late")
    breaches = partial(breaches_of_the_schema, Node(late, 1, (None,), ValueScope(), relax.BlockBuilder()))
    assert schema_of(late, 1) is None
    assert not list(breaches())
    operands = [onnx.defs.OpSchema.FormalParameter(name, "tensor(float)") for name in ("a", "b")]
    onnx.defs.register_schema(onnx.defs.OpSchema("Late", "tests.late", 1, inputs=operands))
    try:
        assert schema_of(late, 1) is not None
        assert list(breaches())
    finally:
        onnx.defs.deregister_schema("Late", 1, "tests.late")


def test_imports_share_biases_in_the_shape_of_columns() -> None:
    weights = {"w": np.ones((4, 3, 1, 1), "float32"), "b": np.ones(4, "float32")}
    model = make([node("Conv", ["x", "w", "b"], ["y"])], {"x": ["n", 3, 5, 5]}, ["y"], weights)
    read = importer(model, strict=True)
    mods = [read({"x": (count, 3, 5, 5)}).mod for count in (1, 2)]
    found = [find(mod["main"], GenericConst) for mod in mods if mod is not None]
    assert len(found[0]) == len(weights)
    assert all(one.same_as(other) for one, other in zip(*found, strict=True))
