"""Operators whose result has a size that only the data tells, also in a process that has no compiler."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from onnx import helper
from tvm import relax

import fusion
from fusion.errors import UnsupportedOperatorError
from tests.module.small_models import FLOAT, INT64, model
from tests.regressions.relax_models import module

X = np.array([[0, 2, 0, 3], [2, 0, 0, 3], [0, 2, 0, 3]], np.float32)


def nonzero() -> onnx.ModelProto:
    return model([helper.make_node("NonZero", ["x"], ["y"])], [("x", FLOAT, [3, 4])], [("y", INT64, [2, "n"])])


def unique(**attributes: int) -> onnx.ModelProto:
    node = helper.make_node("Unique", ["x"], ["y", "first", "which", "many"], **attributes)
    outputs = [("y", FLOAT, None), *((name, INT64, ["n"]) for name in ("first", "which", "many"))]
    return model([node], [("x", FLOAT, [3, 4])], outputs)


@pytest.mark.parametrize(
    "small", [nonzero(), unique(), unique(sorted=0), unique(axis=0), unique(axis=1, sorted=0)]
)
def test_values(small: onnx.ModelProto) -> None:
    expected = ort.InferenceSession(small.SerializeToString()).run(None, {"x": X})
    for found, wanted in zip(fusion.compile(small)(X), expected, strict=True):
        np.testing.assert_array_equal(found, wanted)


def test_an_operator_of_an_unknown_shape() -> None:
    """TVM has forms of operators for known sizes only, or such as have a name: it was an internal error."""
    inputs = {"x": ((6,), "float32")}
    with pytest.raises(UnsupportedOperatorError, match="squeeze needs the shapes of its operands"):
        fusion.compile(module(lambda builder, x: relax.op.squeeze(builder.emit(relax.op.nonzero(x)), [0]), inputs))


def test_a_process_that_only_loads(tmp_path: Path) -> None:
    fusion.compile(nonzero(), strict=True).save(tmp_path / "nonzero.fusion")
    code = (
        "import sys, numpy, fusion\n"
        f"module = fusion.load({str(tmp_path / 'nonzero.fusion')!r})\n"
        f"print(module(numpy.array({X.tolist()}, 'float32'))[0].tolist(), 'tvm' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.split() == f"{np.array(X.nonzero()).tolist()} False".split(), done.stderr
