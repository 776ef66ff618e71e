"""Torch programs that cannot be compiled, and what importing one leaves as it was."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fusion
from fusion.errors import InvalidModelError, ModelFileError, UnsupportedOperatorError
from fusion.frontends import read_signature

torch = pytest.importorskip("torch")


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
