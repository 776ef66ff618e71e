"""Indices that only the run knows wrote and read outside of their tensors: 128 of 100 changed other arrays, 1,000 was a
crash."""

from __future__ import annotations

import multiprocessing
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
import tvm
from onnx import TensorProto, helper
from tvm import relax, tirx

import fusion
from fusion.errors import ExecutionError, ShapeError
from fusion.guards import FROM_ZERO
from tests.regressions.relax_models import module

_FAR = (1_000, 1 << 40, -(1 << 40))


@dataclass(frozen=True)
class Case:
    """An operator whose input `at` holds indices.

    Attributes:
        inputs: Valid ones; the last index is replaced.
        inside, outside: What takes its place.
        bound: What the error says is allowed.
    """

    op: str
    inputs: Sequence[np.ndarray]
    at: int
    inside: tuple[int, ...]
    outside: tuple[int, ...]
    bound: str
    attributes: Mapping[str, Any] = field(default_factory=dict)
    domain: str = ""
    name: str = ""

    def arrays(self, value: int) -> list[np.ndarray]:
        arrays = [array.copy() for array in self.inputs]
        arrays[self.at].reshape(-1)[-1] = value
        return arrays


_X = np.random.default_rng(0).standard_normal((4, 5)).astype("float32")
_IMAGES = np.random.default_rng(1).standard_normal((2, 3, 8, 8)).astype("float32")


def _ints(*values: int, shape: tuple[int, ...] = (-1,)) -> np.ndarray:
    return np.array(values, "int64").reshape(shape)


_CASES = [
    Case("Gather", [_X, _ints(0, 1)], 1, (3, -4), (4, -5), "-4..3"),
    Case("Gather", [_X, _ints(0, 1).astype("int32")], 1, (4, -5), (5, -6), "-5..4", {"axis": 1}, name="int32"),
    Case("GatherElements", [_X, _ints(0, 1, shape=(1, 2))], 1, (4, -5), (5, -6), "-5..4", {"axis": 1}),
    Case("GatherND", [_X, _ints(1, 1, shape=(1, 2))], 1, (4, -5), (5, -6), "-5..4"),
    Case("GatherND", [_X, _ints(0, 1, 2, 3, shape=(4, 1))], 1, (4, -5), (5, -6), "-5..4", {"batch_dims": 1}, name="2"),
    Case("ScatterElements", [_X, _ints(0, 1, shape=(1, 2)), np.ones((1, 2), "float32")], 1, (4, -5), (5, 128, -6),
         "-5..4", {"axis": 1}),
    Case("ScatterElements", [_X, _ints(0, 1, shape=(1, 2)), np.ones((1, 2), "float32")], 1, (3, -4), (4, -5),
         "-4..3", {"axis": 0, "reduction": "add"}, name="add"),
    Case("ScatterND", [_X, _ints(0, 1, shape=(1, 2)), np.ones(1, "float32")], 1, (4, -5), (5, 128, -6), "-5..4"),
    Case("ArrayFeatureExtractor", [_X, _ints(0, 1, shape=(1, 2))], 1, (4, 0), (5, -1), "0..4", domain="ai.onnx.ml"),
    Case("MaxUnpool", [_X[None, None, :2, :2].copy(), _ints(0, 1, 2, 3, shape=(1, 1, 2, 2))], 1, (15, 9), (16, -1),
         "0..15", {"kernel_shape": [2, 2], "strides": [2, 2]}),
    Case("RoiAlign", [_IMAGES, np.array([[0, 0, 4, 4], [1, 1, 3, 3]], "float32"), _ints(0, 1)], 2, (0, 1), (2, -1),
         "0..1", {"mode": "max"}),
    Case("ReverseSequence", [_X, _ints(1, 2, 3, 4, 1)], 1, (4,), (5, -1), "0..4", {"time_axis": 0, "batch_axis": 1}),
]  # fmt: skip


def _model(case: Case) -> onnx.ModelProto:
    names = [f"x{index}" for index in range(len(case.inputs))]
    node = helper.make_node(case.op, names, ["y"], f"the_{case.op}", domain=case.domain, **case.attributes)
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in zip(names, case.inputs, strict=True)
    ]
    result = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "g", inputs, [result])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=9)
    if case.domain:
        result.type.CopyFrom(helper.make_tensor_type_proto(TensorProto.FLOAT, None))
    return onnx.shape_inference.infer_shapes(model)


@pytest.mark.parametrize("case", _CASES, ids=lambda case: f"{case.op}{case.name}")
def test_an_index(case: Case) -> None:
    """One inside gives what ONNX Runtime gives; one outside is refused, by name, and nothing else changes."""
    model = _model(case)
    compiled = fusion.compile(model, threads=1)
    reference = ort.InferenceSession(model.SerializeToString())
    kept = []
    for value in case.inside:
        arrays = case.arrays(value)
        (wanted,) = reference.run(None, {f"x{index}": array for index, array in enumerate(arrays)})
        (made,) = compiled(*arrays)
        np.testing.assert_allclose(made, wanted, rtol=1e-5, atol=1e-6)
        kept.append((made, made.copy()))
    for value in (*case.outside, *(_FAR if case.inputs[case.at].dtype == "int64" else ())):
        with pytest.raises(ExecutionError) as caught:
            compiled(*case.arrays(value))
        assert case.op in caught.value.where
        assert f"the_{case.op}" in caught.value.where
        assert str(value) in caught.value.why
        assert case.bound in caught.value.why
    for made, copy in kept:
        np.testing.assert_array_equal(made, copy)


def test_the_error_comes_from_the_first_of_many(tmp_path: Any) -> None:
    """Checks of many indices run in parts; a saved module says the same."""
    data, indices = np.arange(100, dtype="float32"), np.arange(200_000) % 200 - 100
    graph = helper.make_graph(
        [helper.make_node("Gather", ["x", "i"], ["y"], "rows")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (100,)),
         helper.make_tensor_value_info("i", TensorProto.INT64, indices.shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, indices.shape)],
    )  # fmt: skip
    compiled = fusion.compile(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9))
    compiled.save(tmp_path / "m.fsn")
    for each in (compiled, fusion.load(tmp_path / "m.fsn")):
        np.testing.assert_array_equal(each(data, indices)[0], data[indices])
        for place in (0, 77_777, 199_999):
            wrong = indices.copy()
            wrong[place] = 100
            with pytest.raises(ExecutionError, match="an index is outside its axis") as caught:
                each(data, wrong)
            assert caught.value.where == "Gather 'rows'"
            assert caught.value.why == "axis 0 has 100 entries: index 100 is not in -100..99"
        np.testing.assert_array_equal(compiled(data, indices)[0], data[indices])


def _relax(build: Any, *shapes: tuple[tuple[int, ...], str]) -> tvm.IRModule:
    builder = relax.BlockBuilder()
    params = [relax.Var(f"x{index}", relax.TensorType(shape, dtype)) for index, (shape, dtype) in enumerate(shapes)]
    with builder.function("main", params):
        with builder.dataflow():
            result = builder.emit_output(build(*params))
        builder.emit_func_output(result)
    return builder.get()


_F, _I = ((4, 5), "float32"), ((3,), "int64")
_RELAX = {
    "take": (lambda x, i: relax.op.take(x, i, 0), (_F, _I)),
    "take_flat": (lambda x, i: relax.op.take(x, i), (((20,), "float32"), _I)),
    "index_tensor": (lambda x, i: relax.op.index_tensor(x, [i, i]), (_F, _I)),
    "index_put": (lambda x, i, v: relax.op.index_put(x, [i, i], v), (_F, _I, ((3,), "float32"))),
}


@pytest.mark.parametrize("name", _RELAX)
def test_operators_of_relax(name: str) -> None:
    """Modules of Relax, and so those of PyTorch, have the same checks."""
    build, shapes = _RELAX[name]
    compiled = fusion.compile(_relax(build, *shapes), threads=1)
    arrays = [np.ones(shape, dtype) for shape, dtype in shapes]
    compiled(*arrays)
    for value in (20, -21, *_FAR):
        arrays[1][1] = value
        with pytest.raises(ExecutionError, match="an index is outside its axis"):
            compiled(*arrays)


def _places(builder: relax.BlockBuilder, flags: relax.Expr) -> relax.Expr:
    """Return the indices of the elements that are not 0, of which only the run knows how many there are."""
    found = builder.emit(relax.op.nonzero(flags))
    pairs = builder.match_cast(found, relax.TensorType((1, tirx.Var("count", "int64")), "int64"))
    return builder.emit(relax.op.squeeze(pairs, [0]))


def _reversed_columns(builder: relax.BlockBuilder, x: relax.Expr, flags: relax.Expr) -> relax.Expr:
    places = _places(builder, flags)
    return relax.op.reverse_sequence(builder.emit(relax.op.take(x, places, 1)), places, 0, 1)


def _chosen_boxes(builder: relax.BlockBuilder, images: relax.Expr, boxes: relax.Expr, flags: relax.Expr) -> relax.Expr:
    chosen = builder.emit(relax.op.take(boxes, _places(builder, flags), 0))
    return relax.op.vision.roi_align(images, chosen, (2, 2), 1.0, 2, aligned=False)


def test_lengths_and_boxes_of_which_the_run_knows_the_number() -> None:
    """There they were not checked at all."""
    shapes = {"x": ((4, 6), "float32"), "flags": ((6,), "bool")}
    compiled = fusion.compile(module(_reversed_columns, shapes), threads=1)
    x, flags = np.arange(24, dtype="float32").reshape(4, 6), np.array([1, 0, 1, 0, 1, 0], "bool")
    (found,) = compiled(x, flags)
    np.testing.assert_array_equal(found.T, [x[:, 0], [8, 2, 14, 20], [22, 16, 10, 4]])
    with pytest.raises(ExecutionError, match="a length is outside its axis") as caught:
        compiled(x, ~flags)
    assert caught.value.why == "axis 0 has 4 entries: 5 is not in 0..4"

    shapes = {"images": ((2, 3, 8, 8), "float32"), "boxes": ((3, 5), "float32"), "flags": ((3,), "bool")}
    compiled = fusion.compile(module(_chosen_boxes, shapes), threads=1)
    boxes, flags = np.tile(np.array([1, 1, 1, 4, 4], "float32"), (3, 1)), np.array([1, 0, 1], "bool")
    assert compiled(_IMAGES, boxes, flags)[0].shape == (2, 3, 2, 2)
    odd = ((0, 2, "there are 2 images: 2.0 is not in 0..1"), (0, np.nan, "there are 2 images: nan is not in 0..1"),
           (3, np.inf, "it is inf"))  # fmt: skip
    for column, value, why in odd:
        wrong = boxes.copy()
        wrong[2, column] = value
        with pytest.raises(ExecutionError, match="a box is not valid") as caught:
            compiled(_IMAGES, wrong, flags)
        assert caught.value.why == why


def _from_the_end(builder: relax.BlockBuilder, x: relax.Expr, flags: relax.Expr) -> relax.Expr:
    places = builder.emit(relax.op.subtract(_places(builder, flags), relax.const(6, "int64")))
    return relax.op.take(x, builder.emit(relax.op.astype(places, "int8")), 0)


def test_narrow_indices_of_which_the_run_knows_the_number() -> None:
    """The place of -1 among 200 was made an int8 again, and the first row was read."""
    shapes = {"x": ((200, 3), "float32"), "flags": ((6,), "bool")}
    compiled = fusion.compile(module(_from_the_end, shapes), threads=1)
    x, flags = np.arange(600, dtype="float32").reshape(200, 3), np.array([1, 0, 0, 0, 1, 1], "bool")
    np.testing.assert_array_equal(compiled(x, flags)[0], x[[-6, -2, -1]])


def test_positions_of_which_the_run_knows_the_number() -> None:
    """Of modules whose indices do not count from the end, those counted from it."""
    shapes = {"x": ((200, 3), "float32"), "flags": ((6,), "bool")}
    compiled = fusion.compile(module(_from_the_end, shapes).with_attr(FROM_ZERO, True), threads=1)
    with pytest.raises(ExecutionError, match="an index is outside its axis") as caught:
        compiled(np.zeros((200, 3), "float32"), np.ones(6, "bool"))
    assert caught.value.why == "axis 0 has 200 entries: index -6 is not in 0..199"


@pytest.mark.parametrize("mode", ["clip", "wrap"])
def test_take_says_what_an_index_outside_reads(mode: str) -> None:
    compiled = fusion.compile(_relax(lambda x, i: relax.op.take(x, i, 0, mode=mode), _F, _I), threads=1)
    indices = np.array([-3, 9, 2])
    np.testing.assert_array_equal(compiled(_X, indices)[0], np.take(_X, indices, 0, mode=mode))  # type: ignore[call-overload]


def test_no_check_of_what_is_inside() -> None:
    """Positions that an operator found, remainders and constants need none."""

    def build(x: relax.Expr, i: relax.Expr) -> relax.Expr:
        found = relax.op.take(x, relax.op.argmax(x, 0), 1)
        rest = relax.op.take(x, relax.op.floor_mod(i, relax.const(4, "int64")), 0)
        constants = relax.op.take(x, relax.const(np.array([0, 3]), "int64"), 0)
        return relax.Tuple([found, rest, constants])

    square = ((4, 4), "float32")
    plain = fusion.compile(_relax(lambda x, i: relax.op.take(x, i, 0), square, _I), threads=1)
    assert "check_index" in str(plain.explain())
    assert "check_index" not in str(fusion.compile(_relax(build, square, _I), threads=1).explain())


@pytest.mark.parametrize("axis", [0, None])
def test_extremes_of_nothing(axis: int | None) -> None:
    """ArgMax over an axis without entries returned what was in memory."""
    with pytest.raises(ShapeError, match="argmax"):
        fusion.compile(_relax(lambda x: relax.op.argmax(x, axis), ((0, 4), "float32")))


def test_profile_survives_a_check() -> None:
    compiled = fusion.compile(_model(_CASES[0]), threads=1)
    inputs = {f"x{index}": array for index, array in enumerate(_CASES[0].arrays(3))}
    assert "check_index" in str(compiled.profile(inputs, seconds=0.01))


def _slice_model(shape: tuple[int, ...]) -> onnx.ModelProto:
    """Return a slice whose bounds are inputs, and whose result is declared to have `shape`."""
    bounds = [helper.make_tensor_value_info(name, TensorProto.INT64, (1,)) for name in ("s", "e", "a", "t")]
    graph = helper.make_graph(
        [helper.make_node("Slice", ["x", "s", "e", "a", "t"], ["y"], "cut")],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (5, 6)), *bounds],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)


def test_a_slice_of_the_run_has_the_declared_size_or_is_refused() -> None:
    """Its first entry was clamped in silence, and its end was not looked at."""
    x, compiled = np.arange(30, dtype="float32").reshape(5, 6), fusion.compile(_slice_model((2, 6)), threads=1)
    for start, end, step in product((-7, -2, 0, 3, 1 << 62), (-8, 2, 5, (1 << 63) - 1, -(1 << 63)), (1, 2, -1, -3)):
        inputs, wanted = [np.array([value]) for value in (start, end, 0, step)], x[start:end:step]
        if len(wanted) == 2:
            np.testing.assert_array_equal(compiled(x, *inputs)[0], wanted)
            continue
        with pytest.raises(ExecutionError, match="a result has another size") as caught:
            compiled(x, *inputs)
        assert caught.value.where == "Slice 'cut'"
        assert caught.value.why.endswith(f"has 2 entries, and the run {len(wanted)}")


@pytest.mark.parametrize("axis", [2, -3])
def test_a_slice_of_the_run_along_no_axis_is_refused(axis: int) -> None:
    compiled = fusion.compile(_slice_model((5, 6)), threads=1)
    bounds = [np.array([value]) for value in (0, 5, axis, 1)]
    with pytest.raises(ExecutionError, match="none of its operand's"):
        compiled(np.zeros((5, 6), "float32"), *bounds)


def _segmentation_fault(value: int) -> None:
    case = next(case for case in _CASES if case.op == "ScatterND")
    compiled = fusion.compile(_model(case), threads=1)
    with pytest.raises(ExecutionError):
        compiled(*case.arrays(value))


@pytest.mark.parametrize("value", [1_000, 1 << 50])
def test_the_process_lives(value: int) -> None:
    child = multiprocessing.get_context("fork").Process(target=_segmentation_fault, args=(value,))
    child.start()
    child.join()
    assert child.exitcode == 0
