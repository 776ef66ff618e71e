"""Numbers that follow from a size up to a largest one, as the best min(boxes, 20) of a detector: one form is as static
ones at all sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from onnx import ModelProto, TensorProto
from onnx.helper import make_node

import fusion
from fusion.extents import DerivedSize, Extent, with_derived
from fusion.symbolic.choose_probes import choose_probes
from fusion.symbolic.derive import deduce
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OperatorLine
from tests.module.small_models import model as small

MOST = 20
BEST = DerivedSize("least_n", (Extent(0, 1, ("n",)),), most=MOST)
SIZES = ((1, 1), (2, 20), (0, 7), (3, 21), (2, 600), (1, 5))
MANY = {"min": [make_node("Min", ["boxes", "most"], ["many"])], "half": [make_node("Div", ["boxes", "two"], ["many"])],
        "all": [make_node("Identity", ["boxes"], ["many"])]}  # fmt: skip


def detector(many: str) -> ModelProto:
    """Return a model of the best boxes, and their scores, of any number of them."""
    nodes = [
        make_node("MatMul", ["x", "head"], ["scored"]),
        make_node("ReduceMax", ["scored"], ["scores"], axes=[2], keepdims=0),
        make_node("Shape", ["x"], ["boxes"], start=1, end=2),
        *MANY[many],
        make_node("TopK", ["scores", "many"], ["best", "places"], axis=1),
        make_node("Unsqueeze", ["places", "last"], ["column"]),
        make_node("Concat", ["ones", "width"], ["times"], axis=0),
        make_node("Tile", ["column", "times"], ["at"]),
        make_node("GatherElements", ["scored", "at"], ["kept"], axis=1),
        make_node("Softmax", ["kept"], ["y"], axis=-1),
    ]
    head = np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32)
    held = {"head": head, "last": np.array([2]), "most": np.array([MOST]), "two": np.array([2]),
            "ones": np.array([1, 1]), "width": np.array([16])}  # fmt: skip
    outputs = [("best", TensorProto.FLOAT, ["b", "m"]), ("y", TensorProto.FLOAT, ["b", "m", 16])]
    return small(nodes, [("x", TensorProto.FLOAT, ["b", "n", 8])], outputs, held)


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # as static forms are asked for
@pytest.mark.parametrize("many", MANY)
def test_the_best_of_any_number_have_one_form(many: str, tmp_path: Path) -> None:
    model = detector(many)
    module = fusion.compile(model, wait=True, cache=False, threads=2)
    static = fusion.compile(model, wait=True, cache=False, threads=2, dynamic=False)
    given = [np.random.default_rng(n).standard_normal((b, n, 8)).astype(np.float32) for b, n in SIZES]
    for x in given:
        for found, wanted in zip(module(x), static(x), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)
    of_none = [False] * (many == "half")  # half of one is none, which is another model
    assert [form.opened is not None for form in module.specializations] == [True, *of_none], module.explain()
    if many == "min":
        module.save(tmp_path / "best.fusion")
        for found, wanted in zip(fusion.load(tmp_path / "best.fusion")(given[4]), static(given[4]), strict=True):
            np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # as static forms are asked for
def test_the_best_pixels_of_any_picture_have_one_form() -> None:
    """The kernel has rows of `height_by_2 * width_by_2` elements, and the number of all of them."""
    nodes = [
        make_node("Conv", ["x", "taps"], ["seen"], strides=[2, 2], pads=[1, 1, 1, 1]),
        make_node("Reshape", ["seen", "rows"], ["flat"]),
        make_node("TopK", ["flat", "many"], ["y", "places"], axis=1),
    ]
    taps = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    held = {"taps": taps, "rows": np.array([0, -1]), "many": np.array([MOST])}
    model = small(nodes, [("x", TensorProto.FLOAT, ["b", 3, "h", "w"])], [("y", TensorProto.FLOAT, ["b", MOST])], held)
    module = fusion.compile(model, wait=True, cache=False, threads=2)
    static = fusion.compile(model, wait=True, cache=False, threads=2, dynamic=False)
    for b, h, w in ((2, 33, 40), (1, 5, 64), (3, 100, 31), (1, 64, 64)):
        x = np.random.default_rng(h).standard_normal((b, 3, h, w)).astype(np.float32)
        np.testing.assert_allclose(module(x)[0], static(x)[0], rtol=1e-4, atol=1e-4)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


@pytest.mark.filterwarnings("ignore::fusion.errors.ManyFormsWarning")  # as static forms are asked for
def test_the_row_in_the_middle_has_one_form() -> None:
    nodes = [
        make_node("Shape", ["x"], ["rows"], start=1, end=2),
        make_node("Div", ["rows", "two"], ["middle"]),
        make_node("Gather", ["x", "middle"], ["y"], axis=1),
    ]
    model = small(nodes, [("x", TensorProto.FLOAT, ["b", "n", 8])], [("y", TensorProto.FLOAT, ["b", 1, 8])],
                  {"two": np.array([2])})  # fmt: skip
    module = fusion.compile(model, wait=True, cache=False, threads=2)
    for b, n in ((2, 5), (1, 1), (0, 4), (3, 300), (2, 64), (1, 2)):
        x = np.random.default_rng(n).standard_normal((b, n, 8)).astype(np.float32)
        np.testing.assert_array_equal(module(x)[0], x[:, n // 2 : n // 2 + 1])
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


def test_it_is_told_by_sizes_on_both_sides() -> None:
    seen = [{"n": size} for size in (31, 47, 113, 141, 167, 230)]
    lines = [(OperatorLine("op", "#", (each["n"], min(each["n"], MOST * 5), min(each["n"], MOST * 5) * 4)),)
             for each in seen]  # fmt: skip
    deduction = deduce(lines, seen)
    assert [str(size) for size in deduction.derived] == ["least_n = min(n, 100)"]
    for size in (0, 1, 99, 100, 101, 4096):
        (_, extents), *_ = deduction.graph.lines
        known = with_derived({"n": size}, deduction.derived)
        assert [extent.at(known) for extent in extents] == [size, min(size, 100), min(size, 100) * 4]


def test_passes_see_it_on_both_sides() -> None:
    dims = OpenDims(("x",), (("b", "n"),), (BEST,))
    first, second = choose_probes(dims, ({"b": 2, "n": 5}, {"b": 3, "n": 7}), ())
    assert first["n"] == first["least_n"] < MOST == second["least_n"] < second["n"]
    # it tells nothing of the size that it follows from
    assert BEST in dims.relations
    assert len(dims.relations) == 1
