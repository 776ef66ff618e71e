"""Dimensions of one name in the calls of a module: what is refused where they have two sizes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion.errors import InputError, OptionError, ShapeError
from tests.module.open_models import text, two_inputs
from tests.module.small_models import FLOAT, mlp, model


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_dimensions_that_the_user_calls_the_same_have_one_size() -> None:
    relu = model([helper.make_node("Relu", ["x"], ["y"])], [("x", FLOAT, ["a", "b"])], [("y", FLOAT, ["a", "b"])])
    module = fusion.compile(relu, shapes={"x": ("s", "s")}, wait=True)
    assert module(zeros(3, 3))[0].shape == (3, 3)
    with pytest.raises(InputError, match="'s' is 2 in axis 0 of input 'x' and 3 in axis 1 of input 'x'"):
        module(zeros(2, 3))
    assert fusion.compile(relu, wait=True)(zeros(2, 3))[0].shape == (2, 3)


def test_inputs_that_disagree_are_told_from_operators_that_refuse(tmp_path: Path) -> None:
    module = fusion.compile(two_inputs().proto, wait=True)
    with pytest.raises(InputError, match="'rows' is 3 in axis 0 of input 'a' and 2 in axis 0 of input 'b'"):
        module(zeros(3, 8), zeros(2, 8))
    assert module(zeros(3, 8), zeros(1, 8))[0].shape == (3, 8), "the model takes that, as ONNX Runtime does"
    module.save(tmp_path / "m.fusion")
    with pytest.raises(InputError, match="'rows' is 3 in axis 0 of input 'a' and 2"):
        fusion.load(tmp_path / "m.fusion")(zeros(3, 8), zeros(2, 8))


def test_a_name_is_fixed_for_all_inputs_that_have_it() -> None:
    inputs = [("x", FLOAT, ["n", "m"]), ("z", FLOAT, ["n", "k"]), ("w", FLOAT, ["n", "k"])]
    nodes = [helper.make_node("Concat", ["x", "z", "w"], ["y"], axis=1)]
    wide = model(nodes, inputs, [("y", FLOAT, ["n", "all"])])
    module = fusion.compile(wide, shapes={"x": (2, 5)}, wait=True)
    assert [spec.shape for spec in module.inputs] == [(2, 5), (2, None), (2, None)]
    assert module(zeros(2, 5), zeros(2, 1), zeros(2, 1))[0].shape == (2, 7)
    with pytest.raises(ShapeError) as caught:
        fusion.compile(wide, shapes={"x": (2, 5), "z": (3, 5)})
    assert caught.value.why == "dimension 'n' is 2 in axis 0 of input 'x' and 3 in axis 0 of input 'z'"


def test_dimensions_have_the_bounds_that_the_user_gives(tmp_path: Path) -> None:
    model = text()
    module = fusion.compile(model.proto, bounds={"length": range(8, 65, 8)}, wait=True)
    for length in (8, 64):
        arrays = model.arrays(batch=2, length=length)
        np.testing.assert_allclose(module.run(arrays)["y"], model.expected(arrays)["y"], rtol=1e-5, atol=1e-6)
    (form,) = module.specializations
    assert form.opened is not None
    assert form.opened.describe_bounds() == "batch 0 to 65536, length 8 to 64 in steps of 8"
    assert [weight.table.shape for weight in form.opened.weights] == [(64, 16)], "as many positions as are asked for"
    module.save(tmp_path / "m.fusion")
    loaded = fusion.load(tmp_path / "m.fusion")
    again = pickle.loads(pickle.dumps(loaded))
    for length in (0, 12, 72):
        told = f"'length' is {length} in axis 1 of input 'ids', and takes 8 to 64 in"
        for each in (module, loaded, again):
            with pytest.raises(InputError, match=told):
                each.run(model.arrays(batch=2, length=length))


@pytest.mark.parametrize(
    ("bounds", "error"),
    [
        ({"words": range(3)}, ShapeError),
        ({"length": 5}, OptionError),
        ({"length": range(9, 3)}, OptionError),
        ({"length": range(-1, 3)}, OptionError),
        ({"length": range(1, 1 << 63)}, OptionError),
        ({"length": range(1, 10**20)}, OptionError),
        (("length", 5), OptionError),
    ],
)
def test_bounds_are_ranges_of_dimensions_that_there_are(bounds: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        fusion.compile(text().proto, bounds=bounds)


def test_a_profile_of_a_shape_draws_the_inputs_and_says_the_sizes() -> None:
    module = fusion.compile(two_inputs().proto, wait=True)
    profile = module.profile({"a": (9, 8)}, seconds=0.01)
    assert profile.kernels
    assert str(profile).startswith("at rows 9\n")
    of_one = fusion.compile(mlp("rows"), wait=True, dynamic=False)
    assert of_one.profile((7, 8), seconds=0.01).sizes == "x [7, 8]"
    for wrong in ({"a": (9, 9)}, {"a": (9,)}, {"c": (9, 8)}, {"a": (9, "n")}, (9, 8)):
        with pytest.raises(fusion.FusionError):
            module.profile(wrong)
