"""Quantisations of torch against torch's own: those that its PT2E export writes, and those in floating point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tvm

import fusion
from fusion.errors import UnsupportedOperatorError
from fusion.frontends.torch import import_torch, open_torch
from fusion.passes.multiply_bytes import MultiplyBytes
from tests.passes.modules import calls
from tests.passes.test_multiply_bytes import FORMS, in_both_forms, product_of
from tests.passes.test_multiply_bytes import operands as products

torch = pytest.importorskip("torch")
pytest.importorskip("torch.ao.quantization.fx._decomposed")  # registers the operators

from tests.frontends.test_torch_operators import Cases, Family, _agree, _values  # noqa: E402 - they need torch

written = torch.ops.quantized_decomposed

X = torch.cat([_values(6, 8) * 3, torch.arange(-8, 8).reshape(2, 8) * 0.125])
"""Of which the last are in the middle between two bytes of a scale of 0.25."""

SCALES, ZEROS = torch.tensor([0.25, 0.5, 0.125, 1.0, 2.0, 0.25, 0.0625, 0.5]), torch.arange(-4, 4)


def test_bytes_of_values() -> None:
    """Scales are powers of two, so that dividing by one is as exact as multiplying by its inverse."""

    def of_tensor(x: Any, zero: int = 0, low: int = -128, high: int = 127, dtype: Any = torch.int8) -> Any:
        return written.quantize_per_tensor(x, 0.25, zero, low, high, dtype)

    def of_channels(x: Any, axis: int, low: int = -128) -> Any:
        return written.quantize_per_channel(x, SCALES, ZEROS, axis, low, 127, torch.int8)

    cases: Cases = {
        "int8": of_tensor,
        "uint8": lambda x: of_tensor(x, 130, 0, 255, torch.uint8),
        "int8 of seven bits": lambda x: of_tensor(x * 9, 5, -64, 63),
        "uint8 of seven bits": lambda x: of_tensor(x * 9, 60, 0, 127, torch.uint8),
        "without the least": lambda x: of_tensor(x * 20, 0, -127),
        "of tensors": lambda x: written.quantize_per_tensor(
            x, torch.tensor(0.25), torch.tensor(3), -128, 127, torch.int8
        ),
        "between tensors": lambda x: written.quantize_per_tensor.tensor2(
            x * 9, torch.tensor(0.25), torch.tensor(5), torch.tensor(-64), torch.tensor(127), torch.int8
        ),
        "rows": lambda x: of_channels(x, 0),
        "columns": lambda x: of_channels(x, 1, -127),
        "values": lambda x: written.dequantize_per_tensor(of_tensor(x, 7), 0.3, 7, -128, 127, torch.int8),
        "values of rows": lambda x: written.dequantize_per_channel(
            of_channels(x, 0), SCALES, ZEROS, 0, -128, 127, torch.int8
        ),
        "values of symmetric columns": lambda x: written.dequantize_per_channel(
            of_channels(x, 1), SCALES / 3, None, 1, -128, 127, torch.int8
        ),
    }
    _agree(cases, (X,), 1e-6)


def test_ranges_that_a_run_finds() -> None:
    """Bytes are at most a step from torch's, which multiplies by the inverse of a scale."""

    def chosen(x: Any, dtype: Any = torch.uint8) -> Any:
        limits = torch.iinfo(dtype)
        return written.choose_qparams(x, limits.min, limits.max, 1e-6, dtype)

    def symmetric(x: Any, dtype: Any = torch.int8) -> Any:
        limits = torch.iinfo(dtype)
        return written.choose_qparams_symmetric(x, limits.min, limits.max, 1e-6, dtype)

    def bytes_of(x: Any) -> Any:
        scale, zero = chosen(x)
        return written.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)

    _agree({
        "scale": lambda x: chosen(x)[0],
        "zero": lambda x: chosen(x)[1],
        "scale of positive": lambda x: chosen(x.abs() + 1)[0],
        "zero of negative": lambda x: chosen(-x.abs() - 1, torch.int8)[1],
        "of nothing": lambda x: chosen(x * 0)[0],
        "symmetric": lambda x: symmetric(x)[0],
        "symmetric zero": lambda x: symmetric(x, torch.uint8)[1],
    }, (X,), 1e-6)  # fmt: skip
    (found,) = fusion.compile((Family({"y": bytes_of}), (X,)))(X)
    steps = np.abs(found.astype(int) - bytes_of(X).numpy().astype(int))
    assert steps.max() <= 1
    assert (steps > 0).mean() < 0.05


@pytest.mark.parametrize("seed", [24, 28, 72])
def test_zero_points_of_float16_are_rounded_once(seed: int) -> None:
    """Of these the quotient rounded to float16 lies between two zero points."""

    def chosen(x: Any) -> Any:
        return written.choose_qparams(x, 0, 255, 1e-6, torch.uint8)

    x = _values(6, 8, seed=seed).half()
    _agree({"scale": lambda x: chosen(x)[0], "zero": lambda x: chosen(x)[1]}, (x,), 1e-9)


def test_quantisations_in_floating_point() -> None:
    one, zero = torch.tensor([0.25]), torch.tensor([3], dtype=torch.int32)
    of_rows = (SCALES, ZEROS.int())
    cases: Cases = {
        "tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.25, 3, 0, 15),
        "of tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, one, zero, -8, 7),
        "number of tensors": lambda x: torch.fake_quantize_per_tensor_affine(x[0, 0], one, zero, -8, 7),
        "rows": lambda x: torch.fake_quantize_per_channel_affine(x, *of_rows, 0, -8, 7),
        "columns": lambda x: torch.fake_quantize_per_channel_affine(x, *of_rows, 1, -128, 127),
    }
    _agree(cases, (X,), 1e-6)


class Quantised(torch.nn.Module):  # type: ignore[misc]
    """A convolution and a product of quantised values by weights of a scale for each output."""

    def __init__(self, observed: bool) -> None:
        super().__init__()
        self.observed = observed
        generator = torch.Generator().manual_seed(1)
        for name, shape in (("kernel", (16, 8, 3, 3)), ("matrix", (12, 16))):
            drawn = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
            self.register_buffer(name, drawn)
            self.register_buffer(f"{name}_scales", torch.rand(shape[0], generator=generator) / 64 + 0.01)
            self.register_buffer(f"{name}_zeros", torch.zeros(shape[0], dtype=torch.int64))

    def _weight(self, name: str) -> Any:
        return written.dequantize_per_channel(
            getattr(self, name), getattr(self, f"{name}_scales"), getattr(self, f"{name}_zeros"), 0, -127, 127,
            torch.int8,
        )  # fmt: skip

    def _rounded(self, x: Any, scale: Any, zero: Any) -> Any:
        if self.observed:
            scale, zero = written.choose_qparams(x, 0, 255, 1e-6, torch.uint8)
            quantised = written.quantize_per_tensor.tensor(x, scale, zero, 0, 255, torch.uint8)
            return written.dequantize_per_tensor.tensor(quantised, scale, zero, 0, 255, torch.uint8)
        quantised = written.quantize_per_tensor(x, scale, zero, 0, 255, torch.uint8)
        return written.dequantize_per_tensor(quantised, scale, zero, 0, 255, torch.uint8)

    def forward(self, x: Any) -> Any:
        """Return the products of the means of a convolution."""
        x = torch.relu(torch.nn.functional.conv2d(self._rounded(x, 0.03125, 128), self._weight("kernel"), padding=1))
        return torch.nn.functional.linear(self._rounded(x.mean((2, 3)), 0.0625, 0), self._weight("matrix"))


@pytest.mark.parametrize("observed", [False, True])
def test_networks_of_quantised_weights(observed: bool) -> None:
    """A value between two bytes may go to the other one: by so much results differ."""
    module, x = Quantised(observed), _values(2, 8, 6, 6)
    (found,) = fusion.compile((module, (x,)))(x)
    expected = module(x).numpy()
    np.testing.assert_allclose(found, expected, rtol=0, atol=0.01 * np.abs(expected).max())


@in_both_forms
def test_products_are_of_bytes(form: str) -> None:
    model = open_torch((Quantised(observed=False), (_values(2, 8, 6, 6),)))
    mod: tvm.IRModule = MultiplyBytes(FORMS[form])(import_torch(model, {}).mod)
    assert products(mod) == [product_of(form)]
    (convolution,) = (call for name, call in calls(mod) if name == "nn.conv2d")
    assert str(convolution.ty.dtype.dtype) == "int32"


def test_products_of_int8() -> None:
    a, b = (torch.randint(-128, 128, shape, dtype=torch.int8) for shape in ((32, 40), (40, 16)))
    (found,) = fusion.compile((Family({"y": torch._int_mm}), (a, b)))(a, b)
    np.testing.assert_array_equal(found, a.numpy().astype("int32") @ b.numpy().astype("int32"))


def test_other_widths_are_refused() -> None:
    with pytest.raises(UnsupportedOperatorError, match="int16"):
        fusion.compile((Family({"y": lambda x: written.quantize_per_tensor(x, 0.1, 0, -512, 511, torch.int16)}), (X,)))
