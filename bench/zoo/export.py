"""A torch module becomes an ONNX file: plain operators, evaluation mode, static shapes."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

_OPSET = 17


class _Select(torch.nn.Module):
    """Calls a transformers model by keyword and returns the chosen fields of its output."""

    def __init__(self, model: torch.nn.Module, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        super().__init__()
        self.model, self.inputs, self.outputs = model, tuple(inputs), tuple(outputs)

    def forward(self, *arrays: torch.Tensor) -> tuple[Any, ...]:
        result = self.model(**dict(zip(self.inputs, arrays, strict=True)))
        return tuple(getattr(result, name) for name in self.outputs)


def token_arguments(shape: tuple[int, int]) -> dict[str, torch.Tensor]:
    """Return example inputs of an encoder: token ids, mask and segment ids, int64 of `shape`."""
    ones = torch.ones(shape, dtype=torch.int64)
    return {"input_ids": ones, "attention_mask": ones.clone(), "token_type_ids": ones.clone()}


def write(model: torch.nn.Module, path: Path, arguments: Mapping[str, torch.Tensor], outputs: Sequence[str]) -> None:
    """Write `model` as ONNX with inputs named as `arguments` and outputs named `outputs`.

    The TorchScript exporter is used: it needs no further package and writes the operators that most ONNX files
    in the wild are made of (Erf for GELU, ReduceMean and Pow or LayerNormalization for normalisations).
    """
    wrapped = _Select(model, tuple(arguments), outputs).eval()
    with torch.no_grad(), warnings.catch_warnings():
        # Tracing warns about every Python number it freezes and about its own deprecation.
        warnings.simplefilter("ignore")
        torch.onnx.export(
            wrapped,
            tuple(arguments.values()),
            str(path),
            dynamo=False,
            opset_version=_OPSET,
            input_names=list(arguments),
            output_names=list(outputs),
        )
