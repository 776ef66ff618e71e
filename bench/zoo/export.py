"""A torch module becomes an ONNX file: plain operators, evaluation mode, static shapes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_OPSET = 17
_IMAGE_RANK = 4


class Select(torch.nn.Module):  # type: ignore[misc]
    """Calls a transformers model by keyword, for evaluation, and returns the chosen fields of its output."""

    def __init__(self, model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, tuple(inputs), tuple(outputs)
        self.eval()

    def forward(self, *arrays: torch.Tensor) -> tuple[Any, ...]:
        result = self.model(**dict(zip(self.inputs, arrays, strict=True)))
        return tuple(getattr(result, name) for name in self.outputs)


def write(model: Select, path: Path, shapes: Mapping[str, tuple[int, ...]]) -> None:
    """Write `model` as ONNX with inputs of `shapes`, inputs and outputs named as the model names them.

    An input of rank four is an image in float32, any other holds int64 tokens.

    The TorchScript exporter is used: it needs no further package and writes the operators that most ONNX files
    in the wild are made of (Erf for GELU, ReduceMean and Pow or LayerNormalization for normalisations).
    """
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing warns about every Python number it freezes and about its own deprecation.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            model,
            tuple(_example(shapes[name]) for name in model.inputs),
            str(path),
            dynamo=False,
            opset_version=_OPSET,
            input_names=list(model.inputs),
            output_names=list(model.outputs),
        )


def _example(shape: tuple[int, ...]) -> torch.Tensor:
    return torch.randn(shape) if len(shape) == _IMAGE_RANK else torch.ones(shape, dtype=torch.int64)
