"""Sizes of inputs that follow from others: decoders with a cache have one form for all lengths of both."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import pytest
import tvm

import fusion
from fusion.errors import FusionError
from fusion.extents import DerivedSize, Extent
from fusion.frontends import importer, read_signature
from fusion.signature import TensorSpec
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.relate import find_relations, find_sum, said_relations
from fusion.symbolic.sized_imports import SizedImports
from tests.module.open_models import OpenModel
from tests.symbolic.decoders import cut_to_both, decoder, patches

CALLS = ((2, 5, 3), (1, 0, 4), (1, 0, 1), (2, 1, 1), (1, 7, 1), (3, 63, 1), (1, 63, 5), (2, 200, 1), (0, 3, 1))
"""Batches, words in the cache, and words behind it."""
SUM = DerivedSize("total", (Extent(0, 1, ("past",)), Extent(0, 1, ("length",))))


def arrays(model: OpenModel, batch: int, past: int, length: int) -> dict[str, np.ndarray]:
    """Return inputs of a decoder, whose mask leaves some words out."""
    (total,) = (each.type.tensor_type.shape.dim[1].dim_param for each in model.proto.graph.input if each.name == "mask")
    found = model.arrays(batch=batch, past=past, length=length, **{total: past + length})
    return {**found, "mask": np.where(found["mask"] % 5, 1, 0)}


def check(module: fusion.CompiledModule, model: OpenModel, call: tuple[int, int, int], atol: float = 1e-5) -> None:
    given = arrays(model, *call)
    for name, wanted in model.expected(given).items():
        np.testing.assert_allclose(module.run(given)[name], wanted, rtol=1e-4, atol=atol, err_msg=f"{call} {name}")


@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize(("total", "by_table"), [("past + length", False), ("total", True)])
def test_a_cache_grows_in_one_form(total: str, by_table: bool, first: int, tmp_path: Path) -> None:
    model = decoder(total, by_table=by_table)
    module = fusion.compile(model.proto, wait=True, cache=False, threads=1 + first)
    for call in (CALLS[first], *CALLS):
        check(module, model, call)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
    assert "= length + past" in module.explain()
    module.save(tmp_path / "decoder.fusion")
    loaded = fusion.load(tmp_path / "decoder.fusion")
    check(loaded, model, (2, 11, 2))


@pytest.mark.parametrize(("total", "most"), [("past + length", 22), ("total", 29)])
def test_a_decoder_is_imported_at_few_sizes(total: str, most: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Eight of them are the corners of its bounds."""
    read, asked = SizedImports._read, list[Mapping[str, Sequence[int]]]()

    def count(importer: SizedImports, shapes: Mapping[str, Sequence[int]]) -> tvm.IRModule:
        asked.append(shapes)
        return read(importer, shapes)

    monkeypatch.setattr(SizedImports, "_read", count)
    model = decoder(total)
    check(fusion.compile(model.proto, wait=True, cache=False, threads=1), model, (2, 5, 3))
    assert 0 < len(asked) <= most


@pytest.mark.parametrize("places", [40, 100, 1024])
def test_a_cache_and_the_words_behind_it_end_with_a_table(places: int) -> None:
    model = decoder("past + length", by_table=True, places=places)
    module = fusion.compile(model.proto, wait=True, cache=False, threads=1)
    half = places // 2
    for call in ((2, 5, 3), (1, 1, 1), (1, 0, 1), (1, places - 1, 1), (1, 1, places - 1), (3, half + 2, half - 2)):
        check(module, model, call, atol=1e-4)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
    assert f"length 1 to {places - 1}, past 0 to {places - 1}, " in module.explain()
    for call in ((1, places, 1), (1, half, half + 1)):
        with pytest.raises(FusionError, match="contradict each other"):
            module.run(arrays(model, *call))


def test_inputs_of_a_call_end_a_sum_without_a_table() -> None:
    """Only imports say so, and no call is asked: both sizes take half."""
    model = cut_to_both(1024)
    module = fusion.compile(model.proto, wait=True, cache=False, threads=1)
    for past, length in ((5, 3), (1, 1), (512, 512), (511, 7), (900, 124), (1023, 1)):
        given = model.arrays(past=past, length=length)
        np.testing.assert_array_equal(module.run(given)["y"], model.expected(given)["y"])
    assert "all sizes: past 0 to 512, length 0 to 512;" in module.explain()
    with pytest.raises(FusionError, match="contradict each other"):
        module.run(model.arrays(past=600, length=500))


def test_a_class_token_stands_before_the_patches_of_any_picture() -> None:
    """The convolution writes no pixels behind it: the concatenation is a kernel of its own."""
    model = patches()
    module = fusion.compile(model.proto, wait=True, cache=False, threads=1)
    for batch, height, width in ((2, 12, 16), (1, 33, 47), (3, 100, 21)):
        given = model.arrays(batch=batch, height=height, width=width)
        np.testing.assert_allclose(module.run(given)["y"], model.expected(given)["y"], rtol=1e-4, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


def test_a_call_of_which_it_does_not_hold_is_refused() -> None:
    model = decoder("total")
    module = fusion.compile(model.proto, wait=True, cache=False, threads=1)
    check(module, model, (2, 5, 3))
    given = arrays(model, 2, 4, 3)
    with pytest.raises(FusionError, match="contradict each other"):
        module.run({**given, "mask": given["mask"][:, 1:]})
    check(module, model, (2, 4, 3))


def dims_of(*inputs: tuple[str, ...]) -> OpenDims:
    return OpenDims(tuple(f"x{place}" for place in range(len(inputs))), inputs)


def test_what_follows_holds_of_each_call() -> None:
    dims = OpenDims(("a", "b"), (("past", "length"), ("total",)), (SUM,))
    assert dims.symbols == ("past", "length")
    assert dims.shapes({"past": 3, "length": 2}) == {"a": (3, 2), "b": (5,)}
    assert dims.sizes([(3, 2), (5,)]) == {"past": 3, "length": 2}
    assert dims.sizes([(3, 2), (6,)]) is None


@pytest.mark.parametrize(
    "order", [("a", "b", "a_plus_b", "a_plus_b_plus_1"), ("a_plus_b_plus_1", "a_plus_b", "b", "a")]
)
def test_a_sum_may_be_part_of_another_one(order: tuple[str, ...]) -> None:
    sizes = {"a": 5, "b": 7, "a_plus_b": 12, "a_plus_b_plus_1": 13}
    found = said_relations(dims_of(*((symbol,) for symbol in order)), sizes)
    assert found is not None
    inputs = {"a": 5, "b": 7}
    shapes = found.shapes(inputs)
    assert [*shapes.values()] == [(sizes[symbol],) for symbol in order]
    assert found.sizes([*shapes.values()]) == inputs
    assert found.sizes([(sizes[symbol] + (symbol == "a_plus_b_plus_1"),) for symbol in order]) is None


def test_only_a_name_with_a_plus_says_a_sum() -> None:
    specs = (
        TensorSpec("x", (None, None), "float32", axes=("length", "past")),
        TensorSpec("x_1", (None, None), "float32", axes=("past+length", None)),
    )
    dims = OpenDims.of(specs)
    assert dims is not None
    found = said_relations(dims, None)
    assert found is not None
    assert [str(each) for each in found.derived] == ["past_plus_length = length + past"]
    unnamed = OpenDims.of([TensorSpec(name, (None, None), "float32") for name in ("x", "x_1")])
    assert unnamed is not None
    assert said_relations(unnamed, None) is None


@pytest.mark.parametrize("name", ["a - 1", "a-1", "a * 1", "a / b", "a - b", "a___b", "a b", "a, b"])
def test_a_name_with_another_sign_says_no_sum(name: str) -> None:
    dims = OpenDims.of([TensorSpec("x", (None, None, None), "float32", axes=("a", "b", name))])
    assert dims is not None
    assert len(dims.symbols) == 3
    assert said_relations(dims, None) is None


@pytest.mark.parametrize(("name", "said"), [("past_plus_length", True), ("length_plus_past", True), ("total", False)])
def test_names_say_what_is_a_sum(name: str, said: bool) -> None:
    dims = dims_of(("past", "length"), (name,))
    found = said_relations(dims, {"past": 0, "length": 4, name: 4})
    assert (found is not None and [each.symbol for each in found.derived] == [name]) == said
    assert said_relations(dims, {"past": 1, "length": 4, name: 4}) is None


def test_relations_of_the_first_call_are_tried() -> None:
    dims = dims_of(("b", "length"), ("rows", "past"), ("b", "total"))

    def is_taken(related: OpenDims) -> bool:
        (_, length), (rows, past), (batch, total) = related.shapes(related.spread(0)).values()
        return total == past + length and rows == batch

    found = find_relations(is_taken, dims, {"b": 2, "length": 3, "rows": 2, "past": 5, "total": 8})
    assert found is not None
    assert sorted(map(str, found.derived)) == ["b = rows", "total = length + past"]
    said = find_relations(is_taken, replace(dims, derived=(SUM,)), {"b": 2, "length": 3, "rows": 2, "past": 5})
    assert said is not None
    assert sorted(map(str, said.derived)) == ["b = rows", "total = past + length"]
    assert find_relations(is_taken, dims, {"b": 2, "length": 3, "rows": 2, "past": 5, "total": 9}) is None
    assert find_relations(lambda _: True, dims, {"b": 2, "length": 3, "rows": 2, "past": 5, "total": 8}) is None
    of_sum = find_sum(lambda _: True, dims, {"b": 2, "length": 3, "rows": 2, "past": 6, "total": 9})
    assert of_sum is not None
    assert [str(each) for each in of_sum.derived] == ["total = length + past"]
    assert find_sum(lambda _: True, dims, {"b": 2, "length": 3, "rows": 2, "past": 6, "total": 7}) is None


def test_a_found_relation_may_be_of_a_size_that_a_said_one_reads() -> None:
    dims = replace(dims_of(("past", "length", "as_long"), ("total",)), derived=(SUM,))

    def is_taken(related: OpenDims) -> bool:
        (past, _, as_long), (_,) = related.shapes(related.spread(0)).values()
        return past == as_long

    found = find_relations(is_taken, dims, {"past": 5, "length": 3, "as_long": 5})
    assert found is not None
    assert found.shapes({"length": 3, "as_long": 5}) == {"x0": (5, 3, 5), "x1": (8,)}


def test_one_relation_is_said_and_another_one_found() -> None:
    """Batches of two inputs are the same, as no name says, and the length of a third is a sum, as its name does."""
    nodes = [
        onnx.helper.make_node("Concat", ["cache", "x"], ["all"], axis=1),
        onnx.helper.make_node("Add", ["all", "mask"], ["y"]),
    ]
    shapes = {"x": ["b", "length", 8], "cache": ["rows", "past", 8], "mask": ["past + length", 8]}
    inputs = [onnx.helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, dims) for name, dims in shapes.items()]
    outputs = [onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, None)]
    proto = onnx.helper.make_model(onnx.helper.make_graph(nodes, "g", inputs, outputs))
    dims = OpenDims.of(read_signature(proto)[0])
    assert dims is not None
    first = {"b": 2, "length": 5, "rows": 2, "past": 7, "past_plus_length": 12}
    found = SizedImports(importer(proto, strict=False), dims, first).find()
    assert sorted(map(str, found.dims.derived)) == ["b = rows", "past_plus_length = length + past"]
    assert {name: sizes[0] for name, sizes in found.bounds.items()} == {"length": 1, "rows": 1, "past": 1}
