"""Inputs and outputs of every dtype pass through, those NumPy lacks too."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import tvm
from tvm import relax

import fusion
from fusion.tensors import numpy_dtype

DTYPES = ["float64", "float32", "float16", "bfloat16", "int64", "int32", "int8", "uint8", "bool"]


def copy_of(dtype: str) -> tvm.IRModule:
    """Return a model that gives each of its two inputs as an output, the second with its axes exchanged."""
    builder = relax.BlockBuilder()
    x, y = (relax.Var(name, relax.TensorType((3, 5), dtype)) for name in "xy")
    with builder.function("main", [x, y]):
        with builder.dataflow():
            result = builder.emit_output(relax.Tuple([x, relax.op.permute_dims(y)]))
        builder.emit_func_output(result)
    return builder.get()


@pytest.mark.parametrize("dtype", DTYPES)
def test_values_of_a_dtype_pass_through(dtype: str, tmp_path: Path) -> None:
    kind = numpy_dtype(dtype)
    x = (np.arange(15).reshape(3, 5) % 2).astype(kind)
    y = (np.arange(15).reshape(3, 5) % 3).astype(kind)
    module = fusion.compile(copy_of(dtype))
    module.save(tmp_path / "copy.fusion")
    for program in (module, fusion.load(tmp_path / "copy.fusion")):
        first, second = program(x, y)
        assert (first.dtype, second.dtype) == (kind, kind)
        np.testing.assert_array_equal(first.view(np.uint8), x.view(np.uint8))
        np.testing.assert_array_equal(second.astype(np.float64), y.T.astype(np.float64))
