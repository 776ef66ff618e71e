"""Weights that an ONNX model lists among its inputs too may be replaced, as ONNX Runtime lets a caller do."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper

import fusion
from fusion.errors import InputError, ShapeError
from fusion.module.overrides import MAX_MODULES, Overrides
from fusion.signature import TensorSpec
from tests.module.small_models import FLOAT, mlp, weights

X = np.random.default_rng(0).standard_normal((3, 8), dtype=np.float32)
FIRST, SECOND = weights(1)


def overridable(*names: str, batch: int | str = 3) -> onnx.ModelProto:
    """Return `mlp` of which the weights `names` are inputs too."""
    model = mlp(batch)
    for name in names:
        shape = (8, 32) if name == "first" else (32, "classes")
        model.graph.input.append(helper.make_tensor_value_info(name, FLOAT, shape))
    return model


@pytest.mark.parametrize("batch", [3, "n"])
def test_values_of_one_call(batch: int | str) -> None:
    model = overridable("first", "second", batch=batch)
    module = fusion.compile(model, wait=True)
    session = ort.InferenceSession(model.SerializeToString())
    assert [spec.name for spec in module.inputs] == [value.name for value in session.get_inputs()] == ["x"]
    theirs = [value.name for value in session.get_overridable_initializers()]
    assert [spec.name for spec in module.overridable] == theirs == ["first", "second"]
    before = module(X)[0]
    wide = np.concatenate([SECOND, SECOND], axis=1)
    for values in ({"second": SECOND}, {"first": FIRST}, {"first": FIRST, "second": wide}, {}):
        (expected,) = session.run(None, {"x": X, **values})
        np.testing.assert_allclose(module.run({"x": X, **values})["y"], expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(module(X)[0], before)


def test_a_named_weight_is_an_input(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(overridable("second"), path)
    module = fusion.compile(path, shapes={"second": (32, 4)})
    assert [spec.name for spec in module.inputs] == ["x", "second"]
    module.save(tmp_path / "saved.fusion")
    expected = np.maximum(X @ weights()[0], 0) @ SECOND
    for each in (module, fusion.load(tmp_path / "saved.fusion")):
        np.testing.assert_allclose(each(X, SECOND)[0], expected, rtol=1e-5, atol=1e-5)


def test_what_may_not_be_replaced(tmp_path: Path) -> None:
    module = fusion.compile(overridable("first"))
    with pytest.raises(InputError, match="unknown 'second'"):
        module.run({"x": X, "second": SECOND})
    with pytest.raises(InputError, match="'first' has the wrong shape"):
        module.run({"x": X, "first": FIRST[:1]})
    with pytest.raises(InputError, match="missing 'x'"):
        module.run({"first": FIRST})
    old = overridable("first")
    old.ir_version = 3
    assert fusion.compile(old).overridable == ()
    with pytest.raises(ShapeError, match="no input 'second'"):
        fusion.compile(overridable("first"), shapes={"second": (32, 4)})
    module.save(tmp_path / "saved.fusion")
    with pytest.raises(InputError, match="unknown 'first'"):
        fusion.load(tmp_path / "saved.fusion").run({"x": X, "first": FIRST})


def test_an_unknown_name_where_the_file_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(overridable("first"), path)
    module = fusion.compile(path)
    path.unlink()
    with pytest.raises(InputError, match="unknown 'third'"):
        module.run({"x": X, "third": FIRST})


def test_modules_that_are_kept() -> None:
    """Each set of names had a module, and of n weights there are 2^n."""
    names = "abcdefghijkl"
    made: list[tuple[str, ...]] = []

    def make(wanted: tuple[str, ...]) -> Any:
        made.append(wanted)
        return wanted

    overrides = Overrides(lambda: tuple(TensorSpec(name, (1,), "float32") for name in names), make)
    for name in names:
        overrides.module([name])
        overrides.module(["a"])
    assert [first for (first,) in made] == list(names)
    with ThreadPoolExecutor(8) as pool:
        asked = [(first, second) for first in names for second in names if first < second]
        assert list(pool.map(overrides.module, asked)) == asked
    assert len(overrides._made) == MAX_MODULES
