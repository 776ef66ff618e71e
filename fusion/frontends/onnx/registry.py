"""The table of converters: one function per ONNX operator, ours before TVM's."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module

from tvm.relax import Expr

from fusion.frontends.onnx.node import Node

Converter = Callable[[Node], Expr | Sequence[Expr]]

_CONVERTERS: dict[tuple[str, str], Converter] = {}
_FAMILIES = (
    "activation",
    "cached_attention",
    "cast",
    "convolution",
    "elementwise",
    "fourier",
    "gather",
    "indexing",
    "linear",
    "logic",
    "narrow_weights",
    "normalization",
    "pooling",
    "quantization",
    "recurrent",
    "reduction",
    "regions",
    "reshape",
    "resize",
    "rotary",
    "scan",
    "slicing",
)


def converts(*operators: str, domain: str = "") -> Callable[[Converter], Converter]:
    """Enter the decorated function as the converter of `operators`."""

    def enter(function: Converter) -> Converter:
        for operator in operators:
            _CONVERTERS[domain, operator] = function
        return function

    return enter


def converter_of(domain: str, operator: str) -> Converter | None:
    """Return our converter of an operator, or None."""
    if not _CONVERTERS:
        for family in _FAMILIES:
            import_module(f"fusion.frontends.onnx.ops.{family}")
    return _CONVERTERS.get((domain, operator))
