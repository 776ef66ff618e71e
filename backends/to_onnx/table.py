"""What writes each operator."""

from __future__ import annotations

from collections.abc import Mapping

from backends.to_onnx.call import Convert
from backends.to_onnx.operators.elementwise import ELEMENTWISE
from backends.to_onnx.operators.filling import FILLING
from backends.to_onnx.operators.indexing import INDEXING
from backends.to_onnx.operators.movement import MOVEMENT
from backends.to_onnx.operators.normalization import NORMALIZATION
from backends.to_onnx.operators.products import PRODUCTS
from backends.to_onnx.operators.reductions import REDUCTIONS
from backends.to_onnx.operators.windows import WINDOWS

CONVERTERS: Mapping[str, Convert] = {
    **ELEMENTWISE, **MOVEMENT, **REDUCTIONS, **PRODUCTS, **NORMALIZATION, **WINDOWS, **INDEXING, **FILLING
}  # fmt: skip
