"""Models as `onnxruntime.quantization` makes them of those in float32."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import onnx
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_dynamic, quantize_static

from tests.frontends.narrow.networks import Network


class _Examples(CalibrationDataReader):  # type: ignore[misc]  # it has no types
    def __init__(self, model: onnx.ModelProto) -> None:
        rng = np.random.default_rng(0)
        shapes = {i.name: [dim.dim_value for dim in i.type.tensor_type.shape.dim] for i in model.graph.input}
        self._feeds = iter([{name: rng.normal(size=shape).astype("float32") for name, shape in shapes.items()}])

    def get_next(self) -> Any:
        return next(self._feeds, None)


def static(
    model: onnx.ModelProto, weights: QuantType = QuantType.QUInt8, activations: QuantType = QuantType.QUInt8,
    **options: Any,
) -> onnx.ModelProto:  # fmt: skip
    """Return `model` with 8-bit activations of ranges that an example gives."""
    log, level = logging.getLogger(), logging.getLogger().level
    log.setLevel(logging.ERROR)  # it recommends a preparation that changes nothing here
    try:
        with TemporaryDirectory() as folder:
            source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
            onnx.save(model, source)
            quantize_static(
                source, target, _Examples(model), weight_type=weights, activation_type=activations, **options
            )
            return onnx.load(target)
    finally:
        log.setLevel(level)


def operators(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return `model` with QLinearConv and the like in place of pairs around operators."""
    return static(model, quant_format=QuantFormat.QOperator)


def dynamic(model: onnx.ModelProto, weights: QuantType = QuantType.QUInt8) -> onnx.ModelProto:
    """Return `model` with 8-bit activations of ranges that each run finds, and weights of 7 bits, by which no sum of
    ONNX Runtime's saturates on CPUs without VNNI: its results say what is right."""
    with TemporaryDirectory() as folder:
        source, target = Path(folder) / "float.onnx", Path(folder) / "quantized.onnx"
        onnx.save(model, source)
        quantize_dynamic(source, target, weight_type=weights, reduce_range=True)
        return onnx.load(target)


def narrow_weights(rows: int = 4, width: int = 256, bits: int = 4) -> onnx.ModelProto:
    """Return matmuls whose weights have 4 bits, or others, in blocks of 32."""
    net, rng = Network(), np.random.default_rng(0)
    x = net.input([rows, width])
    for _ in range(3):
        weights = net.constant(rng.integers(0, 256, (width, width // 32, 4 * bits), dtype=np.uint8))
        scales = net.constant(np.full(width * width // 32, 0.01, np.float32))
        named = {"K": width, "N": width, "bits": bits, "block_size": 32, "domain": "com.microsoft"}
        x = net.op("Relu", net.op("MatMulNBits", x, weights, scales, **named))
    return net.model(x)
