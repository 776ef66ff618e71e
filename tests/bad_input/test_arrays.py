"""A wrong input name, rank, shape, dtype or kind of object is an InputError that names the input and what to do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import fusion
import fusion.api
from fusion.errors import InputError, LimitError, SavedFileError
from tests.module import small_models

GOOD = np.ones((2, 3), np.float32)


@pytest.fixture(scope="module")
def module() -> fusion.CompiledModule:
    return fusion.compile(small_models.two_inputs())


@pytest.mark.parametrize(
    ("inputs", "words"),
    [
        ({"a": GOOD}, ["missing 'b'"]),
        ({}, ["missing 'a', 'b'"]),
        ({"a": GOOD, "b": GOOD, "c": GOOD}, ["unknown 'c'"]),
        ({"a": GOOD, "B": GOOD}, ["missing 'b'", "unknown 'B'"]),
        ([GOOD, GOOD], ["takes a dict", "list"]),
        (GOOD, ["takes a dict", "ndarray"]),
        (None, ["takes a dict", "NoneType"]),
    ],
)
def test_wrong_names(module: fusion.CompiledModule, inputs: Any, words: list[str]) -> None:
    with pytest.raises(InputError) as caught:
        module.run(inputs)
    assert all(word in str(caught.value) for word in [*words, "'a', 'b'", "hint"])


@pytest.mark.parametrize("count", [0, 1, 3])
def test_wrong_number_of_arrays(module: fusion.CompiledModule, count: int) -> None:
    with pytest.raises(InputError, match=f"takes 2 arrays and got {count}"):
        module(*[GOOD] * count)


@pytest.mark.parametrize(
    ("value", "what", "came"),
    [
        (np.ones((2, 3, 1), np.float32), "wrong rank", "float32[2, 3, 1]"),
        (np.float32(1), "wrong rank", "float32[]"),
        (np.ones((3, 2), np.float32), "wrong shape", "float32[3, 2]"),
        (np.ones((2, 0), np.float32), "wrong shape", "float32[2, 0]"),
        (np.ones((2, 3)), "wrong dtype", "float64[2, 3]"),
        (np.ones((2, 3), ">f4"), "wrong dtype", "[2, 3]"),
        (np.ones((2, 3), object), "wrong dtype", "object[2, 3]"),
        (np.full((2, 3), "one"), "wrong dtype", "[2, 3]"),
        (np.ones((2, 3), np.complex64), "wrong dtype", "complex64[2, 3]"),
        ([[1.0] * 3] * 2, "not an array", "list"),
        ("text", "not an array", "str"),
        (None, "not an array", "NoneType"),
    ],
)
def test_wrong_arrays(module: fusion.CompiledModule, value: Any, what: str, came: str) -> None:
    with pytest.raises(InputError, match=what) as caught:
        module(GOOD, value)
    assert "'b'" in caught.value.what
    assert came in caught.value.why
    assert caught.value.hint
    # The module works on.
    assert (module(GOOD, GOOD)[0] == 2).all()


def test_an_array_that_does_not_let_itself_be_viewed(module: fusion.CompiledModule) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="cannot be read") as caught:
        module(GOOD, torch.ones((2, 3), requires_grad=True))
    assert "detach" in caught.value.hint


def test_a_broken_array_object(module: fusion.CompiledModule) -> None:
    class Broken:
        def __dlpack__(self, **_: object) -> object:
            raise RuntimeError("broken on purpose")

        def __dlpack_device__(self) -> tuple[int, int]:
            return (1, 0)

    with pytest.raises(InputError, match="cannot be read") as caught:
        module(GOOD, Broken())
    assert "broken on purpose" in caught.value.why


def test_a_hint_suggests_only_what_the_model_allows() -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (float[batch,3] x) => (float[batch,3] y) { y = Relu (x) }'
    )
    for module in (fusion.compile(model, cache=False), fusion.compile(model, shapes={"x": (2, 3)}, cache=False)):
        with pytest.raises(InputError, match="wrong shape") as caught:
            module(np.ones((2, 2), np.float32))
        assert "(2, 2)" not in caught.value.hint
        assert "resize or pad" in caught.value.hint


@pytest.mark.stand_in
def test_a_module_that_could_not_be_compiled_cannot_be_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 10, opset_import: ["": 18]> graph (float[batch,3] x) => (float[batch,3] y) { y = Relu (x) }'
    )
    module = fusion.compile(model, cache=False, dynamic=False)

    def too_large(*_: Any) -> Any:
        raise LimitError("too large")

    monkeypatch.setattr(fusion.api, "compile_form", too_large)
    module(np.ones((2, 3), np.float32))
    with pytest.raises(SavedFileError) as caught:
        module.save(tmp_path / "m.fusion")
    assert "could not be compiled for x=[2, 3]: too large" in caught.value.why
    assert "wait=True" in caught.value.hint


def test_map_takes_a_series(module: fusion.CompiledModule) -> None:
    with pytest.raises(InputError, match="map takes a series"):
        module.map({"a": GOOD, "b": GOOD})
