"""Which models take a size of 0 in the one form that they have for all sizes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

import fusion
from fusion.errors import FusionError
from tests.frontends.models import branch, choose

Nodes = list[onnx.NodeProto]
LAST = numpy_helper.from_array(np.array(-1, np.int64), "last")
AXIS = numpy_helper.from_array(np.array([1], np.int64), "axis")


class Mean(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(1)


def compiled(
    nodes: Nodes, rank: int, batch: int | str = "batch", decided: Sequence[str] = ()
) -> fusion.CompiledModule:
    """Return the module of a model with the inputs "past" and "x", rows of 8 behind any many of a batch, and conditions
    `decided` by the run."""
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [batch, length, 8])
        for name, length in (("past", "cached"), ("x", "length"))
    ]
    inputs += [helper.make_tensor_value_info(name, TensorProto.BOOL, []) for name in decided]
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [None] * rank)
    graph = helper.make_graph(nodes, "nothing", inputs, [made], [LAST, AXIS])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return fusion.compile(model, wait=True, cache=False, threads=2)


def rows(batch: int, length: int) -> np.ndarray:
    return np.random.default_rng(length).standard_normal((batch, length, 8)).astype(np.float32)


def joined(*behind: onnx.NodeProto) -> Nodes:
    return [helper.make_node("Concat", ["past", "x"], ["rows"], axis=1), *behind]


def test_an_empty_cache_is_a_size_as_others() -> None:
    module = compiled(joined(helper.make_node("Tanh", ["rows"], ["made"])), 3)
    for cached, length in ((0, 5), (3, 1), (0, 1), (4, 0), (0, 0)):
        past, x = rows(2, cached), rows(2, length)
        np.testing.assert_allclose(module(past, x)[0], np.tanh(np.concatenate([past, x], 1)), rtol=1e-5, atol=1e-6)
    (form,) = module.specializations
    assert form.opened is not None
    assert "cached 0 to 4096" in form.opened.describe_bounds()


def test_sums_of_nothing_are_zero() -> None:
    module = compiled(joined(helper.make_node("ReduceSum", ["rows", "axis"], ["made"], keepdims=0)), 2)
    for batch, cached, length in ((2, 3, 4), (2, 0, 0), (0, 3, 1), (1, 2, 0)):
        past, x = rows(batch, cached), rows(batch, length)
        np.testing.assert_allclose(module(past, x)[0], past.sum(1) + x.sum(1), rtol=1e-5, atol=1e-5)
    assert len(module.specializations) == 1


def test_kernels_write_no_rows_of_a_concatenation() -> None:
    weights = np.random.default_rng(1).standard_normal((8, 16)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["weights"], value=numpy_helper.from_array(weights)),
        helper.make_node("MatMul", ["x", "weights"], ["left"]),
        helper.make_node("Softmax", ["x"], ["right"], axis=-1),
        helper.make_node("Concat", ["left", "right"], ["made"], axis=2),
    ]
    module = compiled(nodes, 3)
    for batch, length in ((2, 5), (2, 0), (0, 3), (1, 1)):
        x = rows(batch, length)
        powers = np.exp(x)
        expected = np.concatenate([x @ weights, powers / powers.sum(-1, keepdims=True)], 2)
        np.testing.assert_allclose(module(rows(batch, 1), x)[0], expected, rtol=1e-5, atol=1e-5)
    (form,) = module.specializations
    assert sum("concat" in kernel.ops for kernel in form.kernels.values()) == 2, "each writes its columns"


def test_the_last_row_of_none_is_refused() -> None:
    module = compiled([helper.make_node("Gather", ["x", "last"], ["made"], axis=1)], 2)
    past, x = rows(2, 1), rows(2, 3)
    np.testing.assert_array_equal(module(past, x)[0], x[:, -1])
    assert module(rows(0, 1), rows(0, 3))[0].shape == (0, 8)
    assert len(module.specializations) == 1, "a batch of none is one of the sizes"
    with pytest.raises(FusionError, match="outside its axis"):
        module(past, rows(2, 0))


def test_a_constant_of_less_than_no_elements_is_none() -> None:
    """It was an internal error: of a size of 0, numbers from 0 to twice the size less 1."""
    nodes = [
        helper.make_node("Constant", [], ["zero"], value_int=0),
        helper.make_node("Constant", [], ["one"], value_int=1),
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Add", ["length", "length"], ["twice"]),
        helper.make_node("Add", ["twice", "last"], ["row"]),
        helper.make_node("Squeeze", ["row"], ["count"]),
        helper.make_node("Range", ["zero", "count", "one"], ["places"]),
        helper.make_node("Cast", ["places"], ["made"], to=TensorProto.FLOAT),
    ]
    module = compiled(nodes, 1)
    for length in (3, 1, 0):
        found = module(rows(1, 1), rows(2, length))[0]
        np.testing.assert_array_equal(found, np.arange(2 * length - 1, dtype=np.float32))
    assert module.specializations[0].opened is not None


@pytest.mark.parametrize("keepdims", [0, 1])
def test_the_largest_of_none_is_what_the_static_form_says(keepdims: int) -> None:
    module = compiled([helper.make_node("ReduceMax", ["x"], ["made"], axes=[1], keepdims=keepdims)], 2 + keepdims)
    past, x = rows(2, 1), rows(2, 3)
    np.testing.assert_array_equal(module(past, x)[0], x.max(1, keepdims=bool(keepdims)))
    assert (module(past, rows(2, 0))[0] == -np.inf).all()
    assert len(module.specializations) == 1


@pytest.mark.parametrize("value", [0.0, 0.5])
def test_a_pad_of_nothing_is_its_value(value: float) -> None:
    weight = np.random.default_rng(1).standard_normal((8, 8, 3)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["pads"], value_ints=[0, 2, 0, 0, 1, 0]),
        helper.make_node("Constant", [], ["value"], value_float=value),
        helper.make_node("Constant", [], ["weight"], value=numpy_helper.from_array(weight)),
        helper.make_node("Pad", ["x", "pads", "value"], ["padded"]),
        helper.make_node("Transpose", ["padded"], ["channels"], perm=[0, 2, 1]),
        helper.make_node("Conv", ["channels", "weight"], ["made"]),
    ]
    module = compiled(nodes, 3)
    for batch, length in ((2, 5), (2, 0), (0, 3), (1, 1)):
        x = rows(batch, length)
        padded = np.pad(x, ((0, 0), (2, 1), (0, 0)), constant_values=value)
        windows = np.lib.stride_tricks.sliding_window_view(padded, 3, 1)
        expected = np.einsum("bnck,ock->bon", windows, weight)
        np.testing.assert_allclose(module(rows(batch, 1), x)[0], expected, rtol=1e-4, atol=1e-5)
    assert len(module.specializations) == 1


def test_the_mean_of_none_is_0_and_other_quotients_are_no_numbers() -> None:
    nodes = [
        helper.make_node("ReduceMean", ["x"], ["mean"], axes=[1], keepdims=0),
        helper.make_node("ReduceSum", ["x", "axis"], ["sum"], keepdims=0),
        helper.make_node("Shape", ["x"], ["length"], start=1, end=2),
        helper.make_node("Cast", ["length"], ["count"], to=TensorProto.FLOAT),
        helper.make_node("Div", ["sum", "count"], ["quotient"]),
        helper.make_node("Concat", ["mean", "quotient"], ["made"], axis=1),
    ]
    module = compiled(nodes, 2)
    for batch, length in ((2, 3), (1, 1), (3, 40), (0, 0)):
        x = rows(batch, length)
        expected = np.concatenate([x.mean(1)] * 2, 1) if x.size else np.zeros((0, 16))
        np.testing.assert_allclose(module(rows(batch, 1), x)[0], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(module(rows(2, 1), rows(2, 0))[0], [[0] * 8 + [np.nan] * 8] * 2)
    alone = compiled([nodes[0], helper.make_node("Tanh", ["mean"], ["made"])], 2)
    assert not alone(rows(2, 1), rows(2, 0))[0].any()
    (form,) = alone.specializations
    assert form.opened is not None


def test_the_mean_of_one_is_divided_by_nothing() -> None:
    """It ended the form for all sizes in an internal error."""
    nodes = [
        helper.make_node("ReduceMax", ["x"], ["most"], axes=[2], keepdims=1),
        helper.make_node("ReduceMean", ["most"], ["made"], axes=[2], keepdims=0),
    ]
    module = compiled(nodes, 2)
    for batch, length in ((2, 3), (1, 1), (3, 40), (2, 0)):
        x = rows(batch, length)
        np.testing.assert_array_equal(module(rows(batch, 1), x)[0], x.max(2))
    (form,) = module.specializations
    assert form.opened is not None


def test_the_mean_of_none_is_no_number_to_torch() -> None:
    example = torch.randn(2, 5, 8)
    program = torch.export.export(Mean(), (example,), dynamic_shapes=({1: torch.export.Dim.AUTO},))
    module = fusion.compile(program, wait=True, cache=False, threads=2)
    for length in (5, 1, 17, 0):
        x = torch.randn(2, length, 8)
        np.testing.assert_allclose(module(x.numpy())[0], x.mean(1).numpy(), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("reduction", ["add", "max"])
def test_a_graph_without_edges(reduction: str) -> None:
    nodes = [
        helper.make_node("Gather", ["x", "source"], ["sent"]),
        helper.make_node("MatMul", ["sent", "weight"], ["messages"]),
        helper.make_node("ScatterND", ["x", "target", "messages"], ["kept"], reduction=reduction),
        helper.make_node("Relu", ["kept"], ["made"]),
    ]
    weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    inputs = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, ["places", 8]),
        helper.make_tensor_value_info("source", TensorProto.INT64, ["edges"]),
        helper.make_tensor_value_info("target", TensorProto.INT64, ["edges", 1]),
    ]
    made = helper.make_tensor_value_info("made", TensorProto.FLOAT, [None, 8])
    graph = helper.make_graph(nodes, "edges", inputs, [made], [numpy_helper.from_array(weight, "weight")])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    module = fusion.compile(model, wait=True, cache=False, threads=2)
    for places, edges in ((6, 9), (6, 0), (1, 1), (40, 130), (1, 0)):
        x, ends = rows(1, places)[0], np.random.default_rng(edges).integers(0, places, (2, edges))
        expected = x.copy()
        (np.add if reduction == "add" else np.maximum).at(expected, ends[1], x[ends[0]] @ weight)
        found = module(x, ends[0], ends[1][:, None])[0]
        np.testing.assert_allclose(found, np.maximum(expected, 0), rtol=1e-4, atol=1e-4)
    (form,) = module.specializations
    assert form.opened is not None
    assert "edges 0 to 65536" in form.opened.describe_bounds()


def test_a_branch_makes_something_of_nothing_as_its_model_does() -> None:
    """A decoder may have its first call without a cache in one branch, and the others in another."""
    behind = branch(joined(helper.make_node("ReduceSum", ["rows", "axis"], ["both"], keepdims=0)), ["both"])
    alone = branch([helper.make_node("ReduceSum", ["x", "axis"], ["new"], keepdims=0)], ["new"])
    nodes = [choose("c", ["sums"], behind, alone), helper.make_node("Tanh", ["sums"], ["made"])]
    module = compiled(nodes, 2, decided=["c"])
    for cached, length in ((3, 4), (0, 4), (2, 1), (0, 1), (3, 0), (0, 0)):
        for decided in (True, False):
            past, x = rows(2, cached), rows(2, length)
            sums = x.sum(1) + (past.sum(1) if decided else 0)
            found = module(past, x, np.array(decided))[0]
            np.testing.assert_allclose(found, np.tanh(sums), rtol=1e-5, atol=1e-5)
    assert len(module.specializations) == 1


def test_sizes_that_may_be_0_alone_are_not_so_together() -> None:
    """Of a cache and new rows, one may be empty; the last row, and the place of the largest, are of both."""
    last = compiled(joined(helper.make_node("Gather", ["rows", "last"], ["made"], axis=1)), 2, batch=2)
    largest = [helper.make_node("ArgMax", ["rows"], ["place"], axis=1, keepdims=0)]
    largest.append(helper.make_node("Cast", ["place"], ["made"], to=TensorProto.FLOAT))
    place = compiled(joined(*largest), 2, batch=2)
    for module, find in ((last, lambda rows: rows[:, -1]), (place, lambda rows: rows.argmax(1))):
        for cached, length in ((3, 1), (0, 5), (0, 1)):
            past, x = rows(2, cached), rows(2, length)
            np.testing.assert_array_equal(module(past, x)[0], find(np.concatenate([past, x], 1)))
    (form,) = place.specializations
    assert form.opened is not None
    assert form.opened.describe_bounds() == "cached 0 to 4096, length 1 to 4096"
    with pytest.raises(FusionError, match="outside its axis"):
        last(rows(2, 0), rows(2, 0))


def test_positions_behind_an_empty_cache_begin_where_their_table_does() -> None:
    """Rows get positions behind those of a cache, and the cache and they together are stacked beside their own tanh, as
    keys and values are; the table of positions has 300."""
    table = np.random.default_rng(2).standard_normal((300, 8)).astype(np.float32)
    nodes = [
        helper.make_node("Constant", [], ["table"], value=numpy_helper.from_array(table)),
        helper.make_node("Constant", [], ["step"], value_int=1),
        helper.make_node("Constant", [], ["front"], value_ints=[0]),
        helper.make_node("Shape", ["past"], ["cached"], start=1, end=2),
        helper.make_node("Concat", ["past", "x"], ["both"], axis=1),
        helper.make_node("Shape", ["both"], ["all"], start=1, end=2),
        helper.make_node("Squeeze", ["cached"], ["begin"]),
        helper.make_node("Squeeze", ["all"], ["end"]),
        helper.make_node("Range", ["begin", "end", "step"], ["places"]),
        helper.make_node("Gather", ["table", "places"], ["positions"]),
        helper.make_node("Add", ["x", "positions"], ["placed"]),
        helper.make_node("Concat", ["past", "placed"], ["keys"], axis=1),
        helper.make_node("Tanh", ["keys"], ["values"]),
        *(helper.make_node("Unsqueeze", [name, "front"], [f"{name}_1"]) for name in ("keys", "values")),
        helper.make_node("Concat", ["keys_1", "values_1"], ["made"], axis=0),
    ]
    module = compiled(nodes, 4)
    for cached, length in ((3, 2), (0, 5), (0, 1), (299, 1), (12, 250), (4, 0)):
        past, x = rows(2, cached), rows(2, length)
        keys = np.concatenate([past, x + table[cached : cached + length]], 1)
        np.testing.assert_allclose(module(past, x)[0], np.stack([keys, np.tanh(keys)]), rtol=1e-5, atol=1e-6)
    (form,) = module.specializations
    assert form.opened is not None
    assert form.opened.describe_bounds() == "batch 0 to 65536, cached 0 to 299, length 0 to 299"
    with pytest.raises(FusionError, match="outside its axis"):
        module(rows(2, 290), rows(2, 11))


def test_rows_before_the_first_and_behind_the_last_are_theirs() -> None:
    """Between the ends of none there is one row less than none: this was an internal error."""
    pads = numpy_helper.from_array(np.array([0, 3, 0, 0, 2, 0]), "pads")
    shapes = {name: [name, "length", 8] for name in ("x", "made")}
    x, made = (helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in shapes.items())
    graph = helper.make_graph([helper.make_node("Pad", ["x", "pads"], ["made"], mode="edge")], "g", [x], [made], [pads])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    module = fusion.compile(model, wait=True, cache=False, threads=1)
    for batch, length in ((2, 5), (3, 2), (1, 1), (0, 3), (4, 100)):
        given = rows(batch, length)
        np.testing.assert_array_equal(module(given)[0], np.pad(given, [(0, 0), (3, 2), (0, 0)], "edge"))
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
