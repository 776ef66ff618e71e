"""A model of the zoo in float16: weights, inputs and outputs, by the converter that ONNX Runtime comes with."""

from __future__ import annotations

import warnings
from pathlib import Path

import onnx


def in_float16(path: Path, folder: Path) -> Path:
    """Return where in `folder` the model of a file of float32 is written in float16.

    What the converter leaves in float32, as resizing, stands between casts. Weights beyond the numbers of float16 are
    its largest and its smallest: such a model is for its kernels, not for what it computes.
    """
    from onnxruntime.transformers.float16 import convert_float_to_float16

    made = folder / f"{path.stem}.fp16.onnx"
    if not made.exists():
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # one for each tensor with such weights
            onnx.save(convert_float_to_float16(onnx.load(str(path))), str(made))
    return made
