"""ONNX's node tests, which onnx generates once in a process."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any
from unittest import mock

import numpy as np
import onnx
from onnx.backend.test.case import base
from onnx.reference.ops import op_pool_common

_POOL = op_pool_common.pool


@lru_cache
def load_cases() -> dict[str, Any]:
    """Return the tests by name, made in 1.7 s of CPU time; onnx overflows on purpose.

    9.1 s without the patches (Zen 3): it reads the source of each test for docs, and goes over pixels in Python.
    """
    with (
        warnings.catch_warnings(),
        mock.patch.object(base, "process_snippet", lambda op_name, name, export: (name, "")),
        mock.patch.object(op_pool_common, "pool", _pool),
    ):
        warnings.simplefilter("ignore")
        from onnx.backend.test.loader import load_model_tests

        cases = {case.name: case for case in load_model_tests(kind="node")}
    for case in cases.values():
        case.data_sets = [tuple(list(map(_array, values)) for values in data_set) for data_set in case.data_sets]
        if case.name.startswith("test_cast") and (narrow := _NARROW.get(case.data_sets[0][1][0].dtype.name)):
            case.data_sets = [_within(narrow, *data_set) for data_set in case.data_sets]
    return cases


_NARROW = {"int2": (-2, 1), "uint2": (0, 3), "int4": (-8, 7), "uint4": (0, 15)}
"""The least and the largest number of integers of few bits."""


def _within(bounds: tuple[int, int], inputs: list[Any], outputs: list[Any]) -> tuple[list[Any], list[Any]]:
    """Return a data set of a cast with numbers that the type has: ONNX leaves open what others become, and ml_dtypes,
    by which onnx makes what it expects, has changed that in 0.7."""
    number, *like = inputs
    if number.dtype.kind != "f":
        return inputs, outputs
    number = number.clip(*bounds)
    return [number, *like], [number.astype(outputs[0].dtype)]


def _pool(
    padded: np.ndarray, x_shape: Sequence[int], kernel: Sequence[int], strides: Sequence[int], out_shape: Sequence[int],
    pooling_type: str, *rest: Any, p: int = 1, **others: Any,
) -> np.ndarray:  # fmt: skip
    """Return what onnx's `pool` does, of windows without pads and dilations at once."""
    if others or any(value is not None for value in rest) or not strides:
        return _POOL(padded, x_shape, kernel, strides, out_shape, pooling_type, *rest, p=p, **others)
    axes = tuple(range(2, padded.ndim))
    windows = np.lib.stride_tricks.sliding_window_view(padded, tuple(kernel), axes)
    windows = windows[(slice(None), slice(None), *(slice(None, None, stride) for stride in strides))]
    assert windows.shape[2 : padded.ndim] == tuple(out_shape)
    inside = tuple(range(padded.ndim, windows.ndim))
    pooled = {
        "AVG": lambda: windows.mean(inside),
        "MAX": lambda: windows.max(inside),
        "LPPOOL": lambda: (abs(windows) ** p).sum(inside) ** (1.0 / p),
    }[pooling_type]()
    return pooled.astype(padded.dtype)


def _array(value: Any) -> Any:
    return onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
