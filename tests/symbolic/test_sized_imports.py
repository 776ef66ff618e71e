"""How often a model is imported to find for which sizes it is one and the same."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx
import pytest
from onnx import TensorProto
from onnx.helper import make_node

from fusion.declined import Declined
from fusion.errors import LimitError, OptionError, ShapeError
from fusion.frontends import importer, read_signature
from fusion.frontends.imported import ImportedModel
from fusion.symbolic.found_model import FoundModel
from fusion.symbolic.narrow import Narrowing
from fusion.symbolic.open_dims import CallAtFault, OpenDims
from fusion.symbolic.sized_imports import Import, SizedImports
from tests.module.small_models import model as small
from tests.symbolic.picture_models import corners, neck


def noting(model: onnx.ModelProto) -> tuple[Import, OpenDims, list[tuple[int, ...]]]:
    """Return what imports `model`, its dimensions, and a list to which each import adds the shape of x."""
    read, asked, dims = importer(model, strict=False), list[tuple[int, ...]](), OpenDims.of(read_signature(model)[0])
    assert dims is not None

    def note(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        asked.append(tuple(shapes["x"]))
        return read(shapes)

    return note, dims, asked


@pytest.mark.parametrize(("model", "most"), [(neck(), 20), (corners(), 12)], ids=["neck", "corners"])
def test_a_model_is_imported_at_few_sizes_and_at_none_twice(model: onnx.ModelProto, most: int) -> None:
    note, dims, asked = noting(model)
    SizedImports(note, dims, {"batch": 1, "height": 96, "width": 128}).find()
    assert len(asked) == len(set(asked)) <= most


@pytest.mark.parametrize("model", [neck(), corners()], ids=["neck", "corners"])
def test_what_becomes_the_model_is_told_before_its_bounds_are_looked_for(model: onnx.ModelProto) -> None:
    (note, dims, asked), told = noting(model), list[tuple[FoundModel, int]]()
    first = {"batch": 1, "height": 96, "width": 128}
    found = SizedImports(note, dims, first, begin=lambda begun: told.append((begun, len(asked)))).find()
    begun, before = told[-1]
    assert begun.graph is found.graph
    assert begun.near == found.near
    assert not begun.bounds
    assert found.bounds
    assert len(asked) > before


@pytest.mark.parametrize(("batch", "asks"), [(1, False), (7, True)])
def test_sizes_between_those_that_bounds_show_are_not_asked_for(batch: int, asks: bool) -> None:
    """A table of 64 positions refuses more of them: the first call might be one of those that are refused."""
    nodes = [
        make_node("Shape", ["x"], ["length"], start=1, end=2),
        make_node("Slice", ["table", "zero", "length", "one"], ["positions"]),
        make_node("Add", ["x", "positions"], ["y"]),
    ]
    weights = {"table": np.ones((1, 64), "float32"), "zero": np.array([0]), "one": np.array([1])}
    kinds = [(name, TensorProto.FLOAT, ["batch", "length"]) for name in "xy"]
    note, dims, asked = noting(small(nodes, kinds[:1], kinds[1:], weights))
    found = SizedImports(note, dims, {"batch": batch, "length": 20}).find()
    assert found.bounds["length"][-1] == 64
    assert ((batch, 20) in asked) == asks


@pytest.mark.parametrize(("window", "least", "asks_for_one"), [(3, 8, False), (1, 1, True)], ids=["wide", "narrow"])
def test_the_smallest_size_of_all_is_asked_for_where_the_second_is_taken(
    window: int, least: int, asks_for_one: bool
) -> None:
    """A recording is too short for a window at 1 if it is at 2."""
    nodes = [make_node("Conv", ["x", "kernel"], ["seen"], strides=[2]), make_node("Relu", ["seen"], ["y"])]
    kernel = np.random.default_rng(0).normal(size=(4, 3, window)).astype(np.float32)
    kinds = [("x", TensorProto.FLOAT, ["batch", 3, "frames"])], [("y", TensorProto.FLOAT, ["batch", 4, "frames_left"])]
    note, dims, asked = noting(small(nodes, *kinds, {"kernel": kernel}))
    found = SizedImports(note, dims, {"batch": 2, "frames": 100}).find()
    assert found.bounds["frames"][0] == least
    frames = [shape[2] for shape in asked]
    assert (1 in frames) == asks_for_one
    assert 2 in frames


def test_what_follows_from_sizes_is_told_where_larger_tensors_do_not_fit_the_memory() -> None:
    """Each pixel of a picture may attend to all others."""
    read = importer(neck(), strict=False)

    def little(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        if shapes["x"][2] * shapes["x"][3] > 1 << 16:
            raise LimitError("there is no room")
        return read(shapes)

    dims = OpenDims.of(read_signature(neck())[0])
    assert dims is not None
    first = {"batch": 1, "height": 96, "width": 128}
    (roomy, limited) = (SizedImports(each, dims, first).find() for each in (read, little))
    assert limited.dims == roomy.dims
    assert limited.graph == roomy.graph


def test_of_places_that_are_as_many_as_rows_one_may_be_left() -> None:
    """It is no place that the model reads by itself, as the first row is: `mask[batches, :, words]` of an encoder."""
    nodes = [
        make_node("Shape", ["x"], ["rows"], start=1, end=2),
        make_node("Squeeze", ["rows"], ["count"]),
        make_node("Range", ["first", "count", "step"], ["places"]),
        make_node("Gather", ["x", "places"], ["y"], axis=1),
    ]
    held = {"first": np.array(0), "step": np.array(1)}
    shape = ["b", "n", 8]
    model = small(nodes, [("x", TensorProto.FLOAT, shape)], [("y", TensorProto.FLOAT, shape)], held)
    dims = OpenDims.of(read_signature(model)[0])
    assert dims is not None
    found = SizedImports(importer(model, strict=False), dims, {"b": 2, "n": 5}).find()
    assert {name: sizes[0] for name, sizes in found.bounds.items()} == {"b": 1, "n": 1}


DIMS = OpenDims(("x", "y"), (("a", "b"), ("c", "d")))
FIRST = {"a": 7, "b": 7, "c": 7, "d": 7}


def test_what_cannot_be_imported_is_known_without_the_arrays_of_the_import() -> None:
    def refuse(_: Mapping[str, Sequence[int]]) -> ImportedModel:
        try:
            raise ValueError("an array of it")
        except ValueError as error:
            raise OptionError("it has no such model") from error

    imports = SizedImports(refuse, DIMS)
    with pytest.raises(OptionError):
        imports.read(FIRST)
    (kept,) = imports.refused.values()
    with pytest.raises(OptionError) as again:
        imports.read(FIRST)
    assert str(again.value) == str(kept)
    for part in (kept.__traceback__, kept.__cause__, kept.__context__, again.value.__cause__):
        assert part is None
    assert "refuse" not in [frame.f_code.co_name for frame, _ in traceback.walk_tb(again.value.__traceback__)]


def test_the_reason_is_that_of_pictures_with_place_for_a_window() -> None:
    """A detector was said to have a convolution that is larger than its picture, as it is at the smallest sizes."""

    def refuse(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        if min(shapes["x"][1:]) < 9:
            raise ShapeError("the input of Conv is smaller than its window")
        raise Declined("ONNX Runtime runs a part of it")

    with pytest.raises(Declined, match="ONNX Runtime runs a part"):
        SizedImports(refuse, OpenDims(("x",), (("batch", "height", "width"),))).find()


def test_no_relations_are_looked_for_where_the_process_has_no_room() -> None:
    asked = list[Mapping[str, Sequence[int]]]()

    def refuse(shapes: Mapping[str, Sequence[int]]) -> ImportedModel:
        asked.append(shapes)
        raise LimitError("there is no room")

    with pytest.raises(CallAtFault, match="no room"):
        SizedImports(refuse, DIMS, FIRST).find()
    assert len(asked) < 12


def _never_read(_: Mapping[str, Sequence[int]]) -> ImportedModel:
    raise AssertionError("it is not imported")


def test_sizes_are_narrowed_in_each_way_once(monkeypatch: pytest.MonkeyPatch) -> None:
    ways = list[str]()

    def narrow_by(way: str) -> Callable[[Narrowing, OpenDims], OpenDims]:
        def narrow(_: Narrowing, dims: OpenDims) -> OpenDims:
            ways.append(way)
            return dims.every("a", len(ways) + 1, 7)

        return narrow

    def find(_: SizedImports) -> None:
        raise Declined("it is another one")

    for way in ("by_import", "by_outline"):
        monkeypatch.setattr(Narrowing, way, narrow_by(way))
    monkeypatch.setattr(SizedImports, "_find", find)
    monkeypatch.setattr(SizedImports, "_is_divided", lambda *_: True)
    monkeypatch.setattr(SizedImports, "_takes", lambda *_: True)
    monkeypatch.setattr(SizedImports, "read", lambda *_: None)
    with pytest.raises(Declined):
        SizedImports(_never_read, DIMS, FIRST).find()
    assert ways == ["by_import", "by_outline"]
