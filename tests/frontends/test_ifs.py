"""What the ONNX frontend makes of an If, whether its condition is known before the run or not."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from fusion import errors
from fusion.frontends import ImportedModel, import_model
from fusion.frontends.imported import names_called
from tests.frontends.models import branch, choose, make, node
from tests.frontends.run import run

X = np.array([[1, -2], [3, 4]], dtype=np.float32)


def model(nodes: list[onnx.NodeProto], condition: bool | None = None) -> onnx.ModelProto:
    """Return y = `nodes` of x[2, 2] and of the condition c: an input, or the constant `condition`."""
    weights = {} if condition is None else {"c": np.array(condition)}
    made = make(nodes, {"x": [2, 2]}, ["y"], weights)
    if condition is None:
        made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
    return made


def op(name: str, output: str) -> onnx.GraphProto:
    """Return a branch that computes one operator of x."""
    return branch([node(name, ["x"], [output])], [output])


def reasons(imported: ImportedModel) -> list[tuple[str, str]]:
    return [(item.op, item.reason) for item in imported.fallbacks]


@pytest.mark.parametrize("condition", [True, False])
def test_constant_condition_is_its_branch(condition: bool) -> None:
    imported = import_model(model([choose("c", ["y"], op("Relu", "t"), op("Neg", "e"))], condition), strict=True)
    assert imported.branches == {}
    np.testing.assert_array_equal(run(imported, X)[0], np.maximum(X, 0) if condition else -X)


def test_output_that_nobody_wants() -> None:
    """An If may leave outputs unnamed, as an operator behind it may leave out an input."""

    def branches() -> tuple[onnx.GraphProto, onnx.GraphProto]:
        nodes = [node("Exp", ["x"], ["a"]), node("Abs", ["x"], ["b"])]
        return branch(nodes, ["a", "b"]), branch(nodes, ["a", "b"])

    clip = node("Clip", ["n", "", "high"], ["y"])
    for condition in (True, None):
        made = model([choose("c", ["", "n"], *branches()), clip], condition)
        made.graph.initializer.append(numpy_helper.from_array(np.float32(2), "high"))
        imported = import_model(made, strict=True)
        if condition:
            np.testing.assert_array_equal(run(imported, X)[0], np.minimum(np.abs(X), 2))


@pytest.mark.parametrize("condition", [True, False, None])
@pytest.mark.parametrize("surplus", ["If", "branches"])
def test_another_number_of_values(surplus: str, condition: bool | None) -> None:
    """No backend knows what that means; the refusal names the If."""
    made = model([choose("c", ["y", "z"] if surplus == "If" else ["y"], op("Exp", "t"), op("Neg", "e"))], condition)
    if surplus == "branches":
        for attribute in made.graph.node[0].attribute:
            attribute.g.output.append(attribute.g.output[0])
    with pytest.raises(errors.UnsupportedOperatorError, match="another number of values") as caught:
        import_model(made)
    assert caught.value.where.startswith("If")


def test_condition_of_several_elements_is_refused() -> None:
    made = model([choose("c", ["y"], op("Exp", "t"), op("Neg", "e"))])
    made.graph.input[1].type.tensor_type.shape.dim.add().dim_value = 2
    assert reasons(import_model(made)) == [("If", "its condition is not one bool")]


@pytest.mark.parametrize("condition", [True, None])
def test_nan_in_the_weights_of_a_branch(condition: bool | None) -> None:
    weights = {"w": np.array([np.nan, 1], dtype=np.float32)}
    then = branch([node("Add", ["x", "w"], ["t"])], ["t"], weights)
    imported = import_model(model([choose("c", ["y"], then, op("Neg", "e"))], condition))
    assert imported.notes == ("weight 'w' holds NaN, 1 of 2 elements",)


def test_sparse_weight_of_the_branch_that_runs() -> None:
    values = numpy_helper.from_array(np.array([5], dtype=np.float32), "w")
    positions = numpy_helper.from_array(np.array([1], dtype=np.int64), "w_positions")
    then = branch([node("Add", ["x", "w"], ["t"])], ["t"])
    then.sparse_initializer.append(helper.make_sparse_tensor(values, positions, [2]))
    (found,) = run(import_model(model([choose("c", ["y"], then, op("Neg", "e"))], True), strict=True), X)
    np.testing.assert_array_equal(found, X + np.array([0, 5], dtype=np.float32))


def test_reason_why_a_branch_is_not_translated() -> None:
    """A sequence does not leave a branch. It may stay in what ONNX Runtime runs of one, whose result has a shape here
    that only the run knows."""
    made = node("SequenceConstruct", ["x", "x"], ["s"])
    q = helper.make_tensor_sequence_value_info("q", TensorProto.FLOAT, None)
    ends = [choose("c", ["q"], branch([made], ["s"]), branch([made], ["s"]))]
    outside = model([*ends, node("ConcatFromSequence", ["q"], ["y"], axis=0)])
    outside.graph.value_info.append(q)
    for nested in (attribute.g for attribute in outside.graph.node[0].attribute):
        nested.output[0].type.CopyFrom(q.type)
    reason = "in a branch: SequenceConstruct 's_node' makes a sequence, which no tensor of TVM holds"
    assert ("If", reason) in reasons(import_model(outside))
    concat = branch([node("ConcatFromSequence", ["s"], ["a"], axis=0)], ["a"])
    then = branch([made, choose("d", ["t"], concat, op("Neg", "b"))], ["t"])
    inside = model([choose("c", ["y"], then, op("Neg", "e"))])
    inside.graph.input.append(helper.make_tensor_value_info("d", TensorProto.BOOL, []))
    assert reasons(import_model(inside)) == [("If", "its branches return values of different or unknown shapes")]


def test_error_in_a_branch_of_a_branch_is_told_in_one_line() -> None:
    inner = choose("d", ["t"], branch([node("Exp", ["x"], ["a"])], ["a", "a"]), op("Neg", "b"))
    made = model([choose("c", ["y"], branch([inner], ["t"]), op("Neg", "e"))])
    made.graph.input.append(helper.make_tensor_value_info("d", TensorProto.BOOL, []))
    with pytest.raises(errors.UnsupportedOperatorError) as caught:
        import_model(made)
    assert caught.value.why.startswith("in a branch: no backend runs If as the model uses it; its branches return")
    assert "\n" not in caught.value.why


def test_what_nobody_reads_is_not_there() -> None:
    """Neither strict mode nor the compiler sees an If, or a fallback, whose results nobody reads."""
    cube = {"x": [2, 3, 3]}
    det = branch([node("Det", ["x"], ["d"]), node("Neg", ["d"], ["t"])], ["t"])
    unread = [choose("c", ["u"], det, branch([node("ReduceSum", ["x", "axes"], ["e"], keepdims=0)], ["e"]))]
    unread += [node("Det", ["x"], ["v"]), node("Neg", ["v"], ["w"])]
    weights = {"axes": np.array([1, 2])}
    for outputs in (["y"], ["y", "u", "w"]):
        made = make([*unread, node("Tanh", ["x"], ["y"])], cube, outputs, weights)
        made.graph.input.append(helper.make_tensor_value_info("c", TensorProto.BOOL, []))
        imported = import_model(made, strict=len(outputs) == 1)
        read = len(outputs) > 1
        assert len(imported.branches) == 2 * read
        assert [item.node for item in imported.fallbacks] == ["v_node", "d_node"] * read
        called = set().union(*map(names_called, (imported.mod, *imported.branches.values())))
        assert called == {*imported.branches, *imported.subgraphs}
