"""How to draw valid inputs and attributes, a row for each operator of ONNX."""

from tests.fuzz.operators import (
    control,
    elementwise,
    images,
    indexing,
    layout,
    learning,
    matrices,
    normalization,
    reductions,
)
from tests.fuzz.operators.rows import ROWS, UNDRAWN

__all__ = [
    "ROWS",
    "UNDRAWN",
    "control",
    "elementwise",
    "images",
    "indexing",
    "layout",
    "learning",
    "matrices",
    "normalization",
    "reductions",
]
