"""Sizes that follow from open ones by strides, concatenations and the like: models with them have one form too."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import combinations_with_replacement
from math import prod
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, numpy_helper
from onnx.helper import make_graph, make_model, make_node, make_opsetid, make_tensor_value_info

import fusion
from fusion.declined import Declined
from fusion.extents import DerivedSize, Extent, with_derived
from fusion.symbolic.choose_probes import choose_probes
from fusion.symbolic.derive import Deduction, deduce, telling
from fusion.symbolic.fit import Fit
from fusion.symbolic.open_dims import OpenDims
from fusion.symbolic.outline import OperatorLine
from tests.module.open_models import OpenModel
from tests.module.small_models import model as small
from tests.symbolic.picture_models import corners

WIDTHS = (138, 195, 264, 349, 446, 559)
DIMS = OpenDims(("x",), (("w",),))


def deduced(function: object, widths: tuple[int, ...] = WIDTHS) -> Deduction:
    """Return what is deduced of a model with the numbers that `function` makes of a width."""
    numbers = [function(width) for width in widths]  # type: ignore[operator]
    return deduce([(OperatorLine("op", "#", each),) for each in numbers], [{"w": width} for width in widths])


def at(deduction: Deduction, width: int) -> tuple[int, ...]:
    sizes = with_derived({"w": width}, deduction.derived)
    return tuple(extent.at(sizes) for _, extents in deduction.graph.lines for extent in extents)


@pytest.mark.parametrize("offset", [-5, -1, 0, 1, 6, 15])
@pytest.mark.parametrize("divisor", [2, 3, 7, 16])
def test_quotients_that_differ_somewhere_are_told_apart(offset: int, divisor: int) -> None:
    def numbers(width: int) -> tuple[int, ...]:
        quotient = (width + offset) // divisor
        return width, quotient, quotient * 24, quotient + 2, 2 * quotient - width

    widths, found = WIDTHS, deduced(numbers)
    while (sizes := telling(found, DIMS, {"w": widths[-1] + 31})) is not None:
        widths = (*widths, sizes["w"])
        found = deduced(numbers, widths)
    assert len(widths) <= 12
    for width in range(1, 400):
        assert at(found, width) == numbers(width)


@pytest.mark.parametrize(("step", "offset"), [(160, 0), (512, 512), (441, -123)])
def test_frames_of_recordings_are_quotients_too(step: int, offset: int) -> None:
    def numbers(size: int) -> tuple[int, ...]:
        frames = (size + offset) // step
        return size, frames, (frames + 1) // 2

    dims = OpenDims(("x",), ((1, "w"),)).reaching({"w": 16000})
    seen = (16000, *(dims.spread(place)["w"] for place in range(4)))
    found = deduced(numbers, seen)
    while (sizes := telling(found, dims, {"w": seen[-1] + 997})) is not None:
        seen = (*seen, sizes["w"])
        found = deduced(numbers, seen)
    assert len(seen) <= 24
    for size in range(step, 65536, 97):
        assert at(found, size) == numbers(size)
    first, second = choose_probes(replace(dims, derived=found.derived), ({"w": 5}, {"w": 7}), ())
    assert all(abs(second[size.symbol] - first[size.symbol]) >= 5 for size in found.derived)


def test_recordings_of_any_length_have_one_form(tmp_path: Path) -> None:
    """Frames of a recording that goes on beyond its ends as in a mirror, divided by their deviation as torch has it."""
    rng = np.random.default_rng(0)
    window = (rng.standard_normal((6, 1, 100)) / 10).astype(np.float32)
    nodes = [
        make_node("Pad", ["x", "edges"], ["padded"], mode="reflect"),
        make_node("Conv", ["padded", "window"], ["frames"], strides=[80]),
        make_node("ReduceMean", ["frames"], ["mean"], axes=[2]),
        make_node("Sub", ["frames", "mean"], ["moved"]),
        make_node("Mul", ["moved", "moved"], ["squares"]),
        make_node("ReduceMean", ["squares"], ["variance"], axes=[2]),
        make_node("Shape", ["frames"], ["count"], start=2, end=3),
        make_node("Cast", ["count"], ["all"], to=TensorProto.FLOAT),
        make_node("Sub", ["all", "one"], ["others"]),
        make_node("Div", ["all", "others"], ["correction"]),
        make_node("Mul", ["variance", "correction"], ["corrected"]),
        make_node("Div", ["moved", "corrected"], ["y"]),
    ]
    held = {"edges": np.array([0, 0, 50, 0, 0, 50]), "window": window, "one": np.ones(1, np.float32)}
    inputs, outputs = [("x", TensorProto.FLOAT, [1, 1, "t"])], [("y", TensorProto.FLOAT, [1, 6, "n"])]
    model = OpenModel(small(nodes, inputs, outputs, held))
    module = fusion.compile(model.proto, wait=True, cache=False, threads=2)
    for size in (16000, 16001, 15999, 5000, 400, 65000):
        given = model.arrays(t=size)
        np.testing.assert_allclose(module(given["x"])[0], model.expected(given)["y"], rtol=2e-3, atol=1e-4)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()
    module.save(tmp_path / "recordings.fusion")
    given = model.arrays(t=7777)
    loaded = fusion.load(tmp_path / "recordings.fusion")
    np.testing.assert_allclose(loaded(given["x"])[0], model.expected(given)["y"], rtol=2e-3, atol=1e-4)


def test_rows_of_a_batch_behind_a_token_of_each_are_a_sum() -> None:
    """No number of the model is batch * words alone."""
    seen = [{"batch": 2 + 3 * place % 7, "words": 101 + 55 * place + 6 * place * place} for place in range(6)]
    lines = [(OperatorLine("op", "#", (each["words"] + 1, each["batch"] * (each["words"] + 1) * 8)),) for each in seen]
    (size,) = deduce(lines, seen).derived
    for batch, words in ((1, 1), (0, 9), (7, 300)):
        assert size.at({"batch": batch, "words": words}) == batch * (words + 1) * 8


def test_quotients_of_quotients_are_symbols_and_their_multiples_extents() -> None:
    found = deduced(lambda width: (width, (width + 1) // 2, (width + 3) // 4, 8 * ((width + 3) // 4) + 1))
    half, quarter = found.derived
    assert (half.parts, half.divisor) == ((Extent(1, 1, ("w",)),), 2)
    assert (quarter.parts, quarter.divisor) == ((Extent(1, 1, (half.symbol,)),), 2)
    assert str(half) == "w_by_2 = (w + 1) // 2"


def test_what_is_no_quotient_is_declined() -> None:
    with pytest.raises(Declined, match="no multiple"):
        deduced(lambda width: (width, width * width // 3))


def test_probes_tell_sizes_apart() -> None:
    def half(of: str, symbol: str) -> DerivedSize:
        return DerivedSize(symbol, (Extent(1, 1, (of,)),), 2)

    derived = tuple(half(f"{axis}{n}", f"{axis}{n + 1}") for axis in "hw" for n in range(3))
    dims = OpenDims(("x",), (("b", 3, "h0", "w0"),), derived)
    fixed = {17, 33, 35}
    probes = choose_probes(dims, ({"b": 5, "h0": 31, "w0": 59}, {"b": 7, "h0": 47, "w0": 61}), fixed)
    assert [sizes["b"] for sizes in probes] == [5, 7]
    assert all(sizes == dims.all_sizes(sizes) for sizes in probes)
    names = [f"{axis}{n}" for axis in "hw" for n in range(4)]
    assert all(len({sizes[name] for name in names}) == len(names) for sizes in probes)
    assert not fixed & {sizes[name] for sizes in probes for name in names}
    known = [Extent(0, a, (name,)) for name in names for a in (1, 2, 4)]
    fit = Fit(probes, known)
    for each in known:
        for constant in (0, 1, -1, 2):
            extent = Extent(constant, each.coefficient, each.symbols)
            assert fit.extent([extent.at(sizes) for sizes in probes]) == extent


def test_batches_that_are_divided_are_seen_where_their_halves_differ() -> None:
    dims = OpenDims(("x", "v"), (("b", 8), ("q", 8)), (DerivedSize("b_by_2", (Extent(0, 1, ("b",)),), 2),))
    first, second = choose_probes(dims, ({"b": 2, "q": 5}, {"b": 3, "q": 7}), ())
    assert second["b_by_2"] - first["b_by_2"] >= 5
    assert (first["q"], second["q"]) == (5, 7)
    assert max(second.values()) < 64


@pytest.mark.parametrize("step", [1, 8, 32, 64])
@pytest.mark.parametrize("fixed", [set(), {96, 160, 192, 224, 448}])
def test_no_size_grows_as_often_as_others(step: int, fixed: set[int]) -> None:
    """Of batches of 2 and 3 and widths of 320 and 480, a number of pixels was `20 * batch * height_by_32`."""
    dims = OpenDims(("x",), (("b", 3, "h", "w"),)).every("h", step, 4 * step).every("w", step, 7 * step)
    derived = [DerivedSize(f"{axis}2", (Extent(0, 1, (axis,)),), 2) for axis in "hw"]
    dims = replace(dims, derived=tuple(derived))
    probes = choose_probes(dims, ({"b": 2, "h": 5, "w": 11}, {"b": 3, "h": 7, "w": 13}), fixed)
    assert all(sizes[name] in dims.taken(name) for sizes in probes for name in "bhw")
    grown = {name: Fraction(probes[1][name], probes[0][name]) for name in "bhw"}
    products = [prod(each) for count in (1, 2) for each in combinations_with_replacement(grown.values(), count)]
    assert len(set(products)) == len(products)


def test_an_index_of_the_last_row_is_no_square_of_batches() -> None:
    probes = ({"b": 2, "h": 9}, {"b": 3, "h": 19})
    assert Fit(probes, [Extent(0, 1, ("h",)), Extent(0, 1, ("b",))]).extent((8, 18)) == Extent(-1, 1, ("h",))


def test_a_third_choice_of_sizes_decides_between_extents_that_the_model_has_not() -> None:
    near = ({"b": 2, "h": 9}, {"b": 3, "h": 19})
    known = [Extent(0, 1, ("h",)), Extent(0, 1, ("b",))]
    two = Fit(near, known)
    assert (two.extent((9, 19)), two.has_doubts) == (Extent(0, 1, ("h",)), False)
    two.extent((40, 80))  # 4 * (h + 1), or 40 * (b - 1)
    assert two.has_doubts
    three = Fit((*near, {"b": 5, "h": 40}), known)
    assert three.extent((40, 80, 164)) == Extent(4, 4, ("h",))
    assert three.extent((40, 80, 160)) == Extent(-40, 40, ("b",))


def test_no_doubt_is_cast_by_what_no_pass_makes() -> None:
    near = ({"b": 2, "h": 41}, {"b": 3, "h": 43})
    known = [Extent(0, 1, ("h",)), Extent(0, 1, ("b",))]
    fit = Fit(near, known)
    assert (fit.extent((8, 12)), fit.has_doubts) == (Extent(0, 4, ("b",)), False)  # or 2 * h - 74
    behind_a_prompt = Fit(near, [*known, Extent(-37, 1, ("h",))])
    behind_a_prompt.extent((8, 12))  # or 2 * (h - 37)
    assert behind_a_prompt.has_doubts


def test_a_float_is_the_ratio_of_extents_that_the_model_has() -> None:
    probes = ({"b": 2, "h": 66, "half": 33}, {"b": 3, "h": 96, "half": 48})
    fit = Fit(probes, [Extent(0, 1, ("h",)), Extent(0, 1, ("half",)), Extent(0, 3, ("half",))])
    steps = [float(np.float32(32 / 98)), float(np.float32(47 / 143))]
    assert fit.ratio(steps) == (Extent(-1, 1, ("half",)), Extent(-1, 3, ("half",)))
    assert fit.ratio([1 / 66, 1 / 96]) == (Extent(1), Extent(0, 1, ("h",)))
    with pytest.raises(Declined, match="no ratio"):
        fit.ratio([0.3, 0.4])


@pytest.mark.parametrize("size", [(1, 1, 1), (2, 9, 14), (1, 64, 33), (3, 101, 2)])
def test_pictures_that_are_read_between_their_corners(size: tuple[int, int, int], cornered: tuple) -> None:  # type: ignore[type-arg]
    module, session = cornered
    batch, height, width = size
    x = np.random.default_rng(width).standard_normal((batch, 3, height, width)).astype(np.float32)
    for result, wanted in zip(module(x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


@pytest.fixture(scope="module")
def cornered() -> tuple[fusion.CompiledModule, onnxruntime.InferenceSession]:
    model = corners()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return fusion.compile(model, wait=True, cache=False, threads=1), session


def picture_model() -> onnx.ModelProto:
    """Return strides, a pool, an upsampling, a concatenation and a mean over pictures of any size."""
    rng = np.random.default_rng(0)
    weights = {
        "k1": rng.standard_normal((16, 3, 3, 3)) / 5, "k2": rng.standard_normal((16, 16, 3, 3)) / 12,
        "k3": rng.standard_normal((16, 32, 1, 1)) / 6, "scales": np.array([1, 1, 2, 2]),
    }  # fmt: skip
    strided = {"pads": [1, 1, 1, 1], "strides": [2, 2]}
    nodes = [
        make_node("Conv", ["x", "k1"], ["half"], **strided),
        make_node("Relu", ["half"], ["kept"]),
        make_node("MaxPool", ["kept"], ["pooled"], kernel_shape=[2, 2], strides=[2, 2]),
        make_node("Conv", ["pooled", "k2"], ["eighth"], **strided),
        make_node("Resize", ["eighth", "", "scales"], ["large"], mode="nearest",
                  coordinate_transformation_mode="asymmetric", nearest_mode="floor"),
        make_node("Relu", ["large"], ["again"]),
        make_node("Concat", ["again", "large"], ["both"], axis=1),
        make_node("Conv", ["both", "k3"], ["y"]),
        make_node("GlobalAveragePool", ["eighth"], ["mean"]),
    ]  # fmt: skip
    graph = make_graph(
        nodes,
        "pictures",
        [make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 3, "height", "width"])],
        [make_tensor_value_info(name, TensorProto.FLOAT, [None] * 4) for name in ("y", "mean")],
        [numpy_helper.from_array(value.astype(np.float32), name) for name, value in weights.items()],
    )
    model = make_model(graph, opset_imports=[make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    return model


@pytest.fixture(scope="module")
def pictures() -> tuple[fusion.CompiledModule, onnxruntime.InferenceSession]:
    model = picture_model()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return fusion.compile(model, wait=True, cache=False, threads=1), session


@pytest.mark.parametrize("size", [(1, 8, 8), (2, 8, 9), (1, 33, 47), (1, 10, 200), (3, 70, 71), (1, 250, 131)])
def test_pictures_of_all_sizes(size: tuple[int, int, int], pictures: tuple) -> None:  # type: ignore[type-arg]
    module, session = pictures
    batch, height, width = size
    x = np.random.default_rng(width).standard_normal((batch, 3, height, width)).astype(np.float32)
    for result, wanted in zip(module(x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
    assert [form.opened is not None for form in module.specializations] == [True], module.explain()


def test_a_saved_form_computes_what_follows_from_a_new_size(
    pictures: tuple,  # type: ignore[type-arg]
    tmp_path: Path,
) -> None:
    module, session = pictures
    x = np.random.default_rng(1).standard_normal((2, 3, 61, 90)).astype(np.float32)
    module(x[:1, :, :40, :40])
    module.save(tmp_path / "pictures.fusion")
    loaded = fusion.load(tmp_path / "pictures.fusion")
    for result, wanted in zip(loaded(x), session.run(None, {"x": x}), strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-4, atol=1e-5)
