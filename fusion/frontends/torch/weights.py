"""Parameters, buffers and constants as TVM takes them: dense arrays of numbers on the CPU."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from fusion.errors import InvalidModelError, UnsupportedOperatorError


def plain_weights(weights: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy of `weights`: contiguous, on the CPU, not watched by autograd, sharing nothing with the module;
    complex numbers are pairs of real ones along a last axis.

    Raises:
        InvalidModelError: One lies on the meta device, where it has no values.
        UnsupportedOperatorError: One is quantised, or of a class of its own.
    """
    return {name: _plain(name, value) if isinstance(value, torch.Tensor) else value for name, value in weights.items()}


def _plain(name: str, value: torch.Tensor) -> torch.Tensor:
    where = f"weight {name!r}"
    if value.device.type == "meta":
        raise InvalidModelError(
            "a weight has no values: it lies on the meta device", where=where, hint="load the weights first"
        )
    if value.is_quantized or type(value) not in (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer):
        raise UnsupportedOperatorError(
            f"a weight is a {'quantised tensor' if value.is_quantized else type(value).__name__}",
            where=where,
            hint="compile the module as it was before, or export it to ONNX",
        )
    dense = value.detach() if value.layout is torch.strided else value.detach().to_dense()
    plain = dense.cpu().resolve_conj().resolve_neg()
    pairs = torch.view_as_real(plain) if plain.is_complex() else plain
    return pairs.clone(memory_format=torch.contiguous_format)
