"""What the run checks, it checks for every shape: that of an axis with one entry was once dropped with its reader.

Also operands that contradict a shape that inference tells without them.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import onnx.parser
import pytest

import fusion
from fusion.compiled_module import CompiledModule
from fusion.errors import ExecutionError
from tests.fuzz.engines import run_onnxruntime

pytestmark = pytest.mark.unoptimised

MODEL = onnx.parser.parse_model(
    """
    <ir_version: 10, opset_import: ["": 23]>
    graph (float[1,4] x, int64 k, float[17] y, int64[1] s, float[16] z, int64[1] n, float[0,3] nothing, int64[2] t)
        => (float[4] gathered, float[17] expanded, float[17] summed, float[4] largest, int64[4] places, float[0,3] none)
    {
        gathered = Gather(x, k)
        expanded = Expand(y, s)
        summed = CumSum(y, k)
        largest, places = TopK(z, n)
        none = Expand(nothing, t)
    }
    """
)
FITS = {
    "x": np.arange(4, dtype=np.float32).reshape(1, 4), "k": np.array(0), "y": np.arange(17, dtype=np.float32),
    "s": np.array([17]), "z": np.arange(16, dtype=np.float32), "n": np.array([4]),
    "nothing": np.zeros((0, 3), np.float32), "t": np.array([1, 3]),
}  # fmt: skip


@pytest.fixture(scope="module")
def compiled() -> CompiledModule:
    return fusion.compile(MODEL)


@pytest.mark.parametrize("changed", [{}, {"k": np.array(-1)}, {"s": np.array([1])}])
def test_what_fits_runs(compiled: CompiledModule, changed: Mapping[str, np.ndarray]) -> None:
    feeds = {**FITS, **changed}
    results, expected = compiled.run(feeds), run_onnxruntime(MODEL, feeds)
    assert expected.status == "ran"
    for name, value in expected.values.items():
        np.testing.assert_allclose(results[name], value, rtol=1e-6)


@pytest.mark.parametrize(
    "changed",
    [{"k": np.array(7)}, {"k": np.array(-2)}, {"s": np.array([-17])}, {"s": np.array([5])}, {"n": np.array([-1000])},
     {"t": np.array([2, 2])}],
)  # fmt: skip
def test_what_contradicts_is_an_error(compiled: CompiledModule, changed: Mapping[str, np.ndarray]) -> None:
    feeds = {**FITS, **changed}
    assert run_onnxruntime(MODEL, feeds).status == "refused"
    with pytest.raises(ExecutionError):
        compiled.run(feeds)


def test_another_size_than_the_declared_one_is_an_error(compiled: CompiledModule) -> None:
    with pytest.raises(ExecutionError, match="size"):
        compiled.run({**FITS, "n": np.array([15])})
