"""Networks as importers of other formats write them, through the whole pipeline: the numbers of the frontend alone."""

from __future__ import annotations

import numpy as np
import pytest

import fusion
from fusion.frontends.relay.parse import parse
from fusion.frontends.relay.syntax import TensorType
from fusion.frontends.relay.translate import translate
from tests.frontends.run import run

CHANNELS_LAST = """
def @main(%x: Tensor[(1, 17, 17, 3), float32], %w: Tensor[(3, 3, 3, 16), float32], %b: Tensor[(16), float32],
          %d: Tensor[(3, 3, 16, 1), float32], %p: Tensor[(1, 1, 16, 8), float32]) {
  %0 = nn.pad(%x, 0f, pad_width=[[0, 0], [0, 1], [0, 1], [0, 0]]);
  %1 = nn.conv2d(%0, %w, strides=[2, 2], padding=[0, 0, 0, 0], channels=16, kernel_size=[3, 3],
                 data_layout="NHWC", kernel_layout="HWIO");
  %2 = nn.bias_add(%1, %b, axis=3);
  %3 = clip(%2, a_min=0f, a_max=6f);
  %4 = nn.conv2d(%3, %d, padding=[1, 1, 1, 1], groups=16, channels=16, kernel_size=[3, 3],
                 data_layout="NHWC", kernel_layout="HWOI");
  %5 = nn.relu(%4);
  %6 = nn.conv2d(%5, %p, padding=[0, 0, 0, 0], channels=8, kernel_size=[1, 1],
                 data_layout="NHWC", kernel_layout="HWIO");
  %7 = nn.avg_pool2d(%6, pool_size=[8, 8], strides=[8, 8], padding=[0, 0, 0, 0], layout="NHWC");
  %8 = nn.batch_flatten(%7);
  nn.softmax(%8)
}
"""
QUANTIZED = """
def @main(%x: Tensor[(1, 4, 8, 8), float32], %w: Tensor[(8, 4, 3, 3), int8], %b: Tensor[(8), int32],
          %v: Tensor[(10, 8), int8]) {
  %0 = qnn.quantize(%x, 0.05f, 128, out_dtype="uint8", axis=1);
  %1 = qnn.conv2d(%0, %w, 128, 0, 0.05f, 0.01f, padding=[1, 1, 1, 1], channels=8, kernel_size=[3, 3],
                  out_dtype="int32");
  %2 = nn.bias_add(%1, %b);
  %3 = qnn.requantize(%2, 0.0005f, 0, 0.04f, 3, axis=1, out_dtype="uint8");
  %4 = clip(%3, a_min=3f, a_max=255f);
  %5 = qnn.add(%4, %4, 0.04f, 3, 0.04f, 3, 0.07f, 5);
  %6 = cast(%5, dtype="int32");
  %7 = nn.global_avg_pool2d(%6);
  %8 = cast(%7, dtype="uint8");
  %9 = nn.batch_flatten(%8);
  %10 = qnn.dense(%9, %v, 5, 0, 0.07f, 0.02f, units=10, out_dtype="int32");
  %11 = qnn.requantize(%10, 0.0014f, 0, 0.1f, 0, rounding="TONEAREST", out_dtype="int8");
  qnn.dequantize(%11, 0.1f, 0)
}
"""
ATTENTION = """
def @main(%x: Tensor[(1, 12, 16), float32], %q: Tensor[(16, 16), float32], %k: Tensor[(16, 16), float32],
          %g: Tensor[(16), float32], %b: Tensor[(16), float32]) {
  %0 = nn.layer_norm(%x, %g, %b);
  %1 = reshape(%0, newshape=[-1, 16]);
  %2 = nn.dense(%1, %q, units=16);
  %3 = reshape(%2, newshape=[12, 2, 8]);
  %4 = transpose(%3, axes=[1, 0, 2]);
  %5 = nn.dense(%1, %k, units=16);
  %6 = reshape(%5, newshape=[12, 2, 8]);
  %7 = transpose(%6, axes=[1, 0, 2]);
  %8 = nn.batch_matmul(%4, %7, transpose_b=True);
  %9 = multiply(%8, 0.353553f);
  %10 = nn.softmax(%9);
  nn.batch_matmul(%10, %7)
}
"""


@pytest.mark.parametrize("text", [CHANNELS_LAST, QUANTIZED, ATTENTION], ids=["channels_last", "quantized", "attention"])
def test_compiled_is_what_the_frontend_says(text: str) -> None:
    rng = np.random.default_rng(3)
    module = parse(text)
    arrays = {}
    for parameter in module.functions["main"].parameters:
        assert isinstance(parameter.type, TensorType)
        shape, dtype = parameter.type.shape, parameter.type.dtype
        drawn = rng.integers(-100, 100, shape) if "int" in dtype else rng.standard_normal(shape)
        arrays[parameter.name] = drawn.astype(dtype)
    weights = {name: array for name, array in arrays.items() if name != "x"}
    want = run(translate(module, weights, {}), arrays["x"])[0]
    got = fusion.compile(text, params=weights, threads=1)(arrays["x"])[0]
    assert np.ptp(want) > 0.1
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
