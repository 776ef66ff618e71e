"""Relax functions as ONNX models: each operator against what fusion compiles, models against ONNX Runtime, and what is
refused. All node tests and models of the zoo by `python -m tests.backends.to_onnx`."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from tvm import relax

import fusion
from backends.to_onnx.export import export_function, why_not_exported
from backends.to_onnx.graph import OnnxNames
from backends.to_onnx.table import CONVERTERS
from bench import zoo
from bench.gate import error_of
from fusion import onnx_file
from fusion.errors import OptionError, UnsupportedOperatorError
from tests.backends.to_onnx.examples import FAMILIES, FamilyModule
from tests.backends.to_onnx.round_trip import exported, round_trip
from tests.frontends.against_onnxruntime import onnxruntime_runs
from tests.frontends.relay import shared_models
from tests.kept_code import quick_kernels
from tests.module.small_models import FLOAT, mlp, mlp_numpy, model


@pytest.mark.parametrize("family", FAMILIES)
def test_each_operator(family: str) -> None:
    """All examples of a family as the results of one function."""
    made = FamilyModule.of(family)
    names = [f"{name} {at}" for at, name in enumerate(made.operators)]
    written = export_function(made.mod["main"], list(made.values), names)
    onnx.checker.check_model(written, full_check=True)
    found = onnxruntime_runs(written, made.values)
    with quick_kernels():
        expected = fusion.compile(made.mod, threads=1)(*made.values.values())
    for name, ours, theirs in zip(names, expected, found, strict=True):
        assert ours.dtype == theirs.dtype, name
        np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5, err_msg=name)


def test_each_row_has_an_example() -> None:
    """But NonZero, whose result has a shape that fusion compiles for no function of Relax."""
    assert {name for examples in FAMILIES.values() for name in examples} == CONVERTERS.keys() - {"nonzero"}


@pytest.mark.parametrize("name", ["squeezenet", "bert_tiny", "ppocr_cls"])
def test_models_of_the_zoo(name: str) -> None:
    made = zoo.make(name)
    inputs = made.inputs(5)
    errors = [error_of(found, expected) for found, expected in zip(*round_trip(made.path, inputs), strict=True)]
    assert max(errors) < 1e-5


@pytest.mark.parametrize("name", ["mlp", "let_tuple", "squeezenet_64", "dcgan"])
def test_relay_modules(name: str, tmp_path: Path) -> None:
    done = fusion.convert(shared_models.path(name), tmp_path / "a model.onnx", params=shared_models.weights(name))
    assert (done.path.name, done.weights) == ("a model.onnx", None)
    values = shared_models.values(name)
    (found, *_) = onnxruntime_runs(onnx.load(done.path), {spec.name: values[spec.name] for spec in done.inputs})
    assert shared_models.close(found, shared_models.expected(name)["output_0"])


def test_an_if_becomes_an_if() -> None:
    """Both branches read what is outside of them; one returns it as it is."""
    branch = {
        "then_branch": helper.make_graph(
            [helper.make_node("Mul", ["h", "h"], ["t"])], "then", [], [helper.make_tensor_value_info("t", FLOAT, [3])]
        ),
        "else_branch": helper.make_graph(
            [helper.make_node("Identity", ["h"], ["e"])], "else", [], [helper.make_tensor_value_info("e", FLOAT, [3])]
        ),
    }
    nodes = [helper.make_node("Exp", ["x"], ["h"]), helper.make_node("If", ["c"], ["y"], **branch)]
    given = model(nodes, [("x", FLOAT, [3]), ("c", TensorProto.BOOL, [])], [("y", FLOAT, [3])], {})
    for taken in (True, False):
        inputs = {"x": np.arange(3, dtype=np.float32), "c": np.array(taken)}
        (found,), (expected,) = round_trip(given, inputs)
        np.testing.assert_allclose(found, expected, rtol=1e-6)


def test_results_that_are_inputs_or_one_value() -> None:
    x = relax.Var("x", relax.TensorType((2,), "float32"))
    builder = relax.BlockBuilder()
    with builder.function("main", [x]):
        with builder.dataflow():
            twice = builder.emit_output(relax.op.add(x, x))
        builder.emit_func_output(relax.Tuple([x, twice, twice, relax.const(np.float32(3))]))
    written = export_function(builder.get()["main"], ["twice"], ["a", "twice_1", "b", "c"])
    onnx.checker.check_model(written, full_check=True)
    found = onnxruntime_runs(written, {"twice": np.array([1, 2], np.float32)})
    assert [array.tolist() for array in found] == [[1, 2], [2, 4], [2, 4], 3]


def test_a_result_is_an_input_of_its_name(tmp_path: Path) -> None:
    given = model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, [2])], [("x", FLOAT, [2]), ("y", FLOAT, [2])])
    done = fusion.convert(given, tmp_path / "it.onnx")
    found = onnxruntime_runs(onnx.load(done.path), {"x": np.array([-1, 2], np.float32)})
    assert [array.tolist() for array in found] == [[-1, 2], [0, 2]]


def test_integers_less_a_zero_point_are_convolved_as_they_are_stored() -> None:
    """The padding is the zero point."""
    draw = np.random.default_rng(0)
    inputs = {"x": draw.integers(0, 255, (1, 2, 5, 4), np.uint8), "z": np.array(7, np.uint8)}
    weights = {"w": draw.integers(-128, 127, (3, 2, 3, 3), np.int8), "v": np.array(3, np.int8)}
    node = helper.make_node("ConvInteger", ["x", "w", "z", "v"], ["y"], pads=[1, 1, 1, 1])
    taken = [(name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape) for name, value in inputs.items()]
    (found,), (expected,) = round_trip(model([node], taken, [("y", TensorProto.INT32, [1, 3, 5, 4])], weights), inputs)
    np.testing.assert_array_equal(found, expected)


def test_pooled_results_are_stored_as_they_say() -> None:
    x = relax.Var("x", relax.TensorType((1, 2, 4, 6), "float32"))
    value = np.random.default_rng(0).standard_normal((1, 2, 4, 6)).astype(np.float32)
    for size, apart in (((1, 1), value.reshape(1, 2, 1, 4, 1, 6)), ((2, 3), value.reshape(1, 2, 2, 2, 3, 2))):
        builder = relax.BlockBuilder()
        with builder.function("main", [x]):
            pooled = relax.op.nn.adaptive_avg_pool2d(x, size, layout="NCHW", out_layout="NHWC")
            builder.emit_func_output(builder.emit(pooled))
        (found,) = onnxruntime_runs(export_function(builder.get()["main"], ["x"], ["y"]), {"x": value})
        np.testing.assert_allclose(found, apart.mean((3, 5)).transpose(0, 2, 3, 1), rtol=1e-5, atol=1e-6)


def test_a_name_is_found_in_as_many_steps_however_many_are_given() -> None:
    asked = []

    class Counted(set[str]):
        def __contains__(self, name: object) -> bool:
            asked.append(name)
            return super().__contains__(name)

    names = OnnxNames(Counted({"a_3"}))
    given = [names.make("a") for _ in range(100)]
    assert given[:3] == ["a", "a_2", "a_4"]
    assert len(set(given)) == 100
    assert len(asked) < 300


def test_what_onnx_lacks_is_named() -> None:
    x = relax.Var("x", relax.TensorType((2, 3), "float32"))
    n = relax.Var("n", relax.TensorType((2, 3), "int32"))
    q = relax.Var("q", relax.TensorType((3,), "int8"))
    image = relax.Var("image", relax.TensorType((1, 1, 3, 4), "float32"))
    packed = relax.op.call_pure_packed("some.function", x, ty_args=x.ty)
    nearest = partial(relax.op.image.resize2d, image, method="nearest_neighbor")
    calls = [
        ("cumprod", "", relax.op.cumprod(x, 0)),
        ("left_shift", "", relax.op.left_shift(n, n)),
        ("call_pure_packed of some.function", "", packed),
        ("image.resize2d", "tf_crop", nearest((2, 2), (0.1,) * 4, coordinate_transformation_mode="tf_crop_and_resize")),
        ("image.resize2d", "even", nearest((6, 4), coordinate_transformation_mode="asymmetric")),
        ("nn.conv2d", "8 bits", relax.op.nn.conv2d(*[relax.op.astype(image, "int32")] * 2)),
        ("what was written", "unsupported type", relax.op.cumsum(q, 0)),
    ]
    for where, why, call in calls:
        builder = relax.BlockBuilder()
        with builder.function("main", [x, n, q, image]):
            builder.emit_func_output(builder.emit(builder.normalize(call), "here"))
        with pytest.raises(UnsupportedOperatorError, match="ONNX") as caught:
            export_function(builder.get()["main"], ["x", "n", "q", "image"], ["y"])
        assert caught.value.where in (where, f"{where} 'here'")
        assert why in caught.value.why
    assert (why_not_exported(relax.op.add(x, x)), why_not_exported(packed)[:20]) == ("", "ONNX has nothing for")


def test_large_weights_lie_beside(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_file, "_LARGEST", 8)
    for _ in range(2):  # a second time over the first
        done = fusion.convert(mlp(), tmp_path / "mlp.onnx")
    assert done.weights == tmp_path / "mlp.onnx.data"
    x = np.random.default_rng(0).standard_normal((3, 8)).astype(np.float32)
    (found,) = fusion.compile(done.path)(x)
    np.testing.assert_allclose(found, mlp_numpy(x), rtol=1e-5, atol=1e-6)
    with pytest.raises(OptionError, match="cannot write"):
        fusion.convert(mlp(), tmp_path / "none" / "mlp.onnx")


def test_open_dimensions_need_sizes() -> None:
    with pytest.raises(fusion.FusionError, match="rows"):
        exported(mlp("rows"))
