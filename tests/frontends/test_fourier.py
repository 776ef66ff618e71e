"""DFT and STFT are products where these are faster, and right by float64."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import parser

import fusion


def _model(text: str, opset: int) -> onnx.ModelProto:
    return parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]> graph {text}')


def _run(text: str, x: np.ndarray, opset: int) -> tuple[np.ndarray, bool]:
    """Return the result for `x`, and whether kernels of ours made it."""
    module = fusion.compile(_model(text, opset), threads=1, wait=True)
    (result,) = module.run({"x": x}).values()
    return result, "on ONNX Runtime" not in str(module.explain())


def _parts(numbers: np.ndarray) -> np.ndarray:
    return np.stack([numbers.real, numbers.imag], -1)


def _close(result: np.ndarray, expected: np.ndarray) -> None:
    assert result.shape == expected.shape
    np.testing.assert_allclose(result, expected, atol=2e-6 * np.abs(expected).max())


@pytest.mark.parametrize("opset", [17, 20])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("inverse", [0, 1])
@pytest.mark.parametrize("length", [9, 15, 16])
def test_transforms(opset: int, parts: int, inverse: int, length: int) -> None:
    """Of as many numbers as there are, of fewer, and of more, which are zeros."""
    x = np.random.default_rng(length).standard_normal((3, 15, 4, parts)).astype("float32")
    axis, operand = ("axis = 1, ", "") if opset < 20 else ("", ", axis")
    text = f"""(float[3,15,4,{parts}] x) => (y) <int64 length = {{{length}}}, int64 axis = {{1}}>
        {{ y = DFT <{axis}inverse = {inverse}> (x, length{operand}) }}"""
    result, ours = _run(text, x, opset)
    numbers = x[..., 0].astype("float64") + (1j * x[..., 1] if parts == 2 else 0)
    _close(result, _parts((np.fft.ifft if inverse else np.fft.fft)(numbers, length, axis=1)))
    assert ours


def test_one_side_along_the_last_axis() -> None:
    x = np.random.default_rng(1).standard_normal((2, 5, 14, 1)).astype("float32")
    result, ours = _run("(float[2,5,14,1] x) => (y) { y = DFT <onesided = 1> (x) }", x, 20)
    _close(result, _parts(np.fft.rfft(x[..., 0].astype("float64"))))
    assert ours


@pytest.mark.parametrize(
    ("length", "step", "size"), [(16, 4, 100), (15, 4, 61), (12, 8, 64), (16, 16, 97), (16, 3, 16)]
)
@pytest.mark.parametrize("windowed", [False, True])
def test_frames(length: int, step: int, size: int, windowed: bool) -> None:
    """Steps that divide the frames, that do not, and that leave samples over."""
    x = np.random.default_rng(size).standard_normal((2, size, 1)).astype("float32")
    window = np.hanning(length + 2)[1:-1] if windowed else np.ones(length)
    numbers = ", ".join(f"{number:.9g}" for number in window)
    text = f"""(float[2,{size},1] x) => (y)
        <int64 step = {{{step}}}, int64 length = {{{length}}}, float[{length}] window = {{{numbers}}}>
        {{ y = STFT (x, step, {"window" if windowed else '""'}, length) }}"""
    result, ours = _run(text, x, 17)
    starts = range(0, size - length + 1, step)
    frames = np.stack([x[:, start : start + length, 0] for start in starts], 1) * window
    _close(result, _parts(np.fft.rfft(frames)))
    assert ours


@pytest.mark.parametrize(
    ("shape", "text"),
    [
        ((1, 4096, 2), "{ y = DFT (x) }"),
        ((1, 512, 2), "{ y = DFT (x) }"),
        ((2, 64, 2), '<int64 step = {16}, int64 length = {32}> { y = STFT <onesided = 0> (x, step, "", length) }'),
    ],
    ids=["large", "one row", "complex frames"],
)
def test_what_onnx_runtime_does_faster_or_alone_stays_there(shape: tuple[int, ...], text: str) -> None:
    x = np.random.default_rng(0).standard_normal(shape).astype("float32")
    _, ours = _run(f"(float[{','.join(map(str, shape))}] x) => (y) {text}", x, 17)
    assert not ours
