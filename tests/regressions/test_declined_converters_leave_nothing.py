"""A converter of TVM's that declined left the cast of a shape behind, which the run held against the data, and what it
read. A reshape to a shape with 0 took the 0 for the size that there is."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper

import fusion
from fusion.frontends.onnx.drop_casts import drop_unused_casts
from tests import internal_errors


def test_axes_of_a_scalar_that_only_the_run_knows() -> None:
    graph = helper.make_graph(
        [
            helper.make_node("Unsqueeze", ["x", "many"], ["more"]),
            helper.make_node("Squeeze", ["x", "none"], ["same"]),
        ],
        "axes",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, []),
            helper.make_tensor_value_info("many", TensorProto.INT64, [2]),
            helper.make_tensor_value_info("none", TensorProto.INT64, [0]),
        ],
        [onnx.ValueInfoProto(name="more"), onnx.ValueInfoProto(name="same")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    inputs = {"x": np.array(2, np.float32), "many": np.array([-2, 1]), "none": np.empty(0, np.int64)}
    with internal_errors.collect() as defects:
        results = fusion.compile(model, threads=1).run(inputs)
    assert not defects
    np.testing.assert_array_equal(results["more"], np.full((1, 1), 2, np.float32))
    np.testing.assert_array_equal(results["same"], inputs["x"])


def test_casts_that_name_a_size_in_use_stay() -> None:
    from tvm import relax, tirx

    builder, count = relax.BlockBuilder(), tirx.Var("n", "int64")
    x = relax.Var("x", relax.TensorType(dtype="float32", ndim=1))
    with builder.function("main", [x]):
        with builder.dataflow():
            builder.match_cast(x, relax.TensorType((count,), "float32"))
            builder.match_cast(x, relax.TensorType((tirx.Var("m", "int64"),), "float32"))
            made = builder.emit_output(relax.op.zeros(relax.ShapeExpr([count]), "float32"))
        builder.emit_func_output(made)
    (block,) = drop_unused_casts(builder.get())["main"].body.blocks
    assert [isinstance(binding, relax.MatchCast) for binding in block.bindings] == [True, False]


def test_an_axis_that_only_the_run_knows_of_a_convolution() -> None:
    """Storage orders were asked for of a result of which nobody knows the size."""
    weight = onnx.numpy_helper.from_array(np.ones((2, 3, 1, 4), np.float32), "w")
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w"], ["u"]), helper.make_node("Squeeze", ["u", "axis"], ["y"])],
        "squeezed",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, [1, 3, 1, 4]),
            helper.make_tensor_value_info("axis", TensorProto.INT64, [1]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [1, 2, 1])],
        [weight],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)
    with internal_errors.collect() as defects:
        module = fusion.compile(model, threads=1)
        results = module.run({"x": np.ones((1, 3, 1, 4), np.float32), "axis": np.array([2])})
    assert not defects
    np.testing.assert_array_equal(results["y"], np.full((1, 2, 1), 12, np.float32))
