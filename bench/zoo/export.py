"""A torch module becomes an ONNX file: plain operators, evaluation mode, static shapes but for the axes left open."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from bench.zoo.model import OpenAxes

_OPSET = 17
_TOKENS = ("input_ids", "attention_mask", "token_type_ids")


class Select(torch.nn.Module):  # type: ignore[misc]
    """Calls a model by keyword, for evaluation, and returns its tensor or the chosen fields of its output."""

    def __init__(self, model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, tuple(inputs), tuple(outputs)
        self.eval()

    def forward(self, *arrays: torch.Tensor) -> tuple[Any, ...]:
        result = self.model(**dict(zip(self.inputs, arrays, strict=True)))
        return (result,) if isinstance(result, torch.Tensor) else tuple(getattr(result, name) for name in self.outputs)


def write(model: Select, path: Path, shapes: Mapping[str, tuple[int, ...]], axes: OpenAxes | None = None) -> None:
    """Write `model` as ONNX with inputs of `shapes`, `axes` of them open, inputs and outputs named as the model names
    them.

    An input that `transformers` names as tokens, their mask or types is int64, any other float32.

    The TorchScript exporter is used: it needs no further package and writes the operators that most ONNX files
    in the wild are made of (Erf for GELU, ReduceMean and Pow or LayerNormalization for normalisations).
    """
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing warns about every Python number it freezes and about its own deprecation.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            tuple(_example(name, shapes[name]) for name in model.inputs),
            str(path),
            dynamo=False,
            opset_version=_OPSET,
            input_names=list(model.inputs),
            output_names=list(model.outputs),
            dynamic_axes=axes,
        )


def _example(name: str, shape: tuple[int, ...]) -> torch.Tensor:
    return torch.ones(shape, dtype=torch.int64) if name in _TOKENS else torch.randn(shape)
