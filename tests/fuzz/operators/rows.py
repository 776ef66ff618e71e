"""The table of rows: by domain and operator, a function that draws a node's inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable

from tests.fuzz.draw import Draw

Row = Callable[[Draw], None]

ROWS: dict[tuple[str, str], Row] = {}

UNDRAWN = {
    ("", "ImageDecoder"): "takes the bytes of a JPEG or PNG file; ONNX Runtime has no kernel",
    ("ai.onnx.preview", "FlexAttention"): "a preview that ONNX Runtime does not have",
    ("ai.onnx.preview.training", "Gradient"): "names other nodes of the graph; ONNX Runtime has no kernel",
}
"""Operators without a row, and why."""


def row(*names: str, domain: str = "") -> Callable[[Row], Row]:
    """Enter a function as the row of these operators."""

    def enter(function: Row) -> Row:
        ROWS.update({(domain, name): function for name in names})
        return function

    return enter
