"""Torch programs that cannot be compiled, and what importing one leaves as it was."""

from __future__ import annotations

import re
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import InvalidModelError, ModelFileError, OptionError, ShapeError, UnsupportedOperatorError
from fusion.frontends import open_model, read_signature

torch = pytest.importorskip("torch")


class Largest(torch.nn.Module):  # type: ignore[misc]
    def forward(self, x: Any) -> Any:
        return torch.topk(x, 2, 1).values


class Classifier(torch.nn.Module):  # type: ignore[misc]
    """x[2, 4] -> y[2, 3], with parts that behave otherwise while training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)
        self.drop = torch.nn.Dropout()
        self.norm = torch.nn.BatchNorm1d(3)

    def forward(self, x: Any) -> Any:
        """Classify."""
        return self.norm(self.drop(self.linear(x)))


class Undecided(torch.nn.Module):  # type: ignore[misc]
    """Runs, and cannot be exported: its way depends on the values it gets."""

    def forward(self, x: Any) -> Any:
        """Go one of two ways."""
        return x + 1 if float(x.sum()) > 0 else x - 1


@pytest.fixture
def module() -> Any:
    torch.manual_seed(0)
    return Classifier()


X = torch.ones(2, 4)
N = torch.export.Dim("n")


@pytest.mark.parametrize(
    ("examples", "why"),
    [
        ((torch.ones(2, 5),), "2x5 and 4x3"),
        ((X, X), "takes 2 positional arguments"),
        ((), "missing 1 required"),
        ("text", "must be Tensor"),
        (([1, 2],), "must be Tensor"),
        ((None,), "must be Tensor"),
    ],
)
def test_a_module_that_does_not_run_on_its_examples(
    module: Any, examples: Any, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(InvalidModelError, match="does not run on its example inputs") as caught:
        read_signature((module, examples))
    assert why in caught.value.why
    assert module.training
    assert capsys.readouterr().err == ""


def test_a_module_that_torch_cannot_export() -> None:
    with pytest.raises(UnsupportedOperatorError, match="cannot export the module Undecided") as caught:
        read_signature((Undecided(), (X,)))
    assert "test_torch.py" in caught.value.where
    assert "float(x.sum()) > 0" in caught.value.where


def test_sizes_that_are_tried_are_not_heard(capfd: pytest.CaptureFixture[str]) -> None:
    """The largest two of one is what torch refuses, with a trace of its own, where a form for all sizes asks."""
    length = torch.export.Dim("length", min=2)
    module = fusion.compile((Largest(), (torch.ones(3, 5),)), dynamic_shapes=({1: length},), wait=True, cache=False)
    np.testing.assert_array_equal(module(np.float32([[1, 3, 2]] * 3))[0], [[3, 2]] * 3)
    assert capfd.readouterr().err == ""


def test_only_the_module_itself_is_heard(capfd: pytest.CaptureFixture[str]) -> None:
    """torch printed the graph up to there, twice, and logged that it found no code of the user's."""

    class Chatty(torch.nn.Module):  # type: ignore[misc]
        def forward(self, x: Any) -> Any:
            print("said", file=sys.stderr)
            return x + 1 if x.sum() > 0 else x - 1

    before = sys.stderr
    with pytest.raises(UnsupportedOperatorError, match="cannot export the module Chatty"):
        read_signature((Chatty(), (X,)))
    assert sys.stderr is before
    assert set(capfd.readouterr().err.split()) == {"said"}


class Sum(torch.nn.Module):  # type: ignore[misc]
    """x[n, 4] + y[4], or a part of x."""

    def forward(self, x: Any, y: Any = None) -> Any:
        """Add."""
        return x + 1 if y is None else x + y


class Halves(torch.nn.Module):  # type: ignore[misc]
    """Runs where x has two rows."""

    def forward(self, x: Any) -> Any:
        """Take the rows apart."""
        return x.reshape(2, 2, 2)


@pytest.mark.parametrize(
    ("dynamic_shapes", "why"),
    [
        ({"z": {0: N}, "y": None}, "it names 'z', and the inputs are x, y"),
        ({"x": {0: N}}, "it has no entry for the input 'y'"),
        ({"x": {2: N}, "y": None}, "the input 'x' has the dimensions 0 to 1, and no 2"),
        ({"x": {"rows": N}, "y": None}, "and no 'rows'"),
        ({"x": (N,), "y": None}, "the input 'x' has 2 dimensions, and its entry 1"),
        (({0: N},), "it has 1 entries, and the inputs are x, y"),
        ("x", "it is of type str, and neither a dict nor a tuple"),
        ({"x": {0: 3.5}, "y": None}, "Unexpected dimension"),
        ({"x": {0: 7}, "y": None}, "Static shape constraint of 7 does not match"),
    ],
)
def test_dynamic_shapes_name_what_is_wrong(dynamic_shapes: Any, why: str) -> None:
    with pytest.raises(OptionError, match="with these dynamic_shapes") as caught:
        open_model((Sum(), (X, X[0])), dynamic_shapes=dynamic_shapes)
    assert why in caught.value.why
    assert caught.value.hint


def test_the_size_that_a_module_needs_is_named() -> None:
    with pytest.raises(OptionError, match="with these dynamic_shapes") as caught:
        open_model((Halves(), (X,)), dynamic_shapes={"x": {0: N}})
    assert "specialized it to be a constant (2)" in caught.value.why


@pytest.mark.parametrize(
    ("limits", "size", "what"),
    [
        ({"min": 3}, 1, "is 1, and the program was exported for 3 or more$"),
        ({"max": 8}, 9, "is 9, and the program was exported for 0 to 8$"),
    ],
)
def test_sizes_that_a_program_was_not_exported_for(limits: dict[str, int], size: int, what: str) -> None:
    rows = torch.export.Dim("rows", **limits)
    program = torch.export.export(Sum(), (torch.ones(5, 4),), dynamic_shapes={"x": {0: rows}})
    with pytest.raises(ShapeError) as caught:
        fusion.compile(program, shapes={"x": (size, 4)})
    assert re.search(what, caught.value.what)


def test_a_shape_of_another_rank_is_told_apart_from_another_size() -> None:
    program = torch.export.export(Sum(), (torch.ones(5, 4),), dynamic_shapes={"x": {0: N}})
    for shape, why in (((5,), "it has 2 dimensions, ('?', 4), and 1 are given"), ((5, 3), "dimension 1 is 4, not 3")):
        with pytest.raises(ShapeError, match="contradicts the model") as caught:
            fusion.compile(program, shapes={"x": shape})
        assert why in caught.value.why


def test_a_module_is_exported_for_inference_and_keeps_its_modes(module: Any) -> None:
    module.norm.eval()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        (result,) = fusion.compile((module, (X,)))(X)
    assert [module.training, module.drop.training, module.norm.training] == [True, True, False]
    with torch.no_grad():
        np.testing.assert_allclose(result, module.eval()(X).numpy(), rtol=1e-5, atol=1e-5)


def test_a_program_exported_in_training_mode_is_refused(module: Any) -> None:
    with pytest.raises(InvalidModelError, match="exported in training mode") as caught:
        read_signature(torch.export.export(module, (X,)))
    assert "dropout" in caught.value.where
    module.drop.eval()
    with pytest.raises(InvalidModelError, match="exported in training mode") as caught:
        read_signature(torch.export.export(module, (X,)))
    assert "batch_norm" in caught.value.where


def test_a_dropout_of_nothing_is_no_training() -> None:
    program = torch.export.export(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.0)), (X,))
    inputs, _ = read_signature(program)
    assert inputs[0].shape == (2, 4)


def _save_module(module: Any, path: Path) -> None:
    torch.save(module.state_dict(), path)


def _save_old(module: Any, path: Path) -> None:
    torch.save(module.state_dict(), path, _use_new_zipfile_serialization=False)


def _save_program(module: Any, path: Path) -> None:
    torch.export.save(torch.export.export(module.eval(), (X,)), path)


@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")
@pytest.mark.parametrize(
    ("save", "name", "kind", "hint"),
    [
        (_save_module, "m.pt", "a PyTorch file", "fusion.compile((module,"),
        (_save_old, "m.pth", "a PyTorch file", "fusion.compile((module,"),
        (_save_program, "m.pt2", "a torch.export file", "torch.export.load"),
    ],
)
def test_a_file_of_torch_says_what_it_is(
    module: Any, save: Any, name: str, kind: str, hint: str, tmp_path: Path
) -> None:
    save(module, tmp_path / name)
    with pytest.raises(ModelFileError, match=f"{name} is {kind}") as caught:
        read_signature(tmp_path / name)
    assert hint in caught.value.hint
    assert "onnx.checker" not in str(caught.value)
