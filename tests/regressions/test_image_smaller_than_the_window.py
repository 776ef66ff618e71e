"""A window that does not fit its input has no result in ONNX Runtime, or an empty one, of which it takes no mean;
fusion made an empty one, and a mean of it."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import helper

import fusion
from fusion.errors import ShapeError
from tests.module.small_models import FLOAT, model

pytestmark = pytest.mark.unoptimised


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("op", ["AveragePool", "Conv"])
def test_too_small(op: str, size: int) -> None:
    weights = {"w": np.ones((8, 8, 3, 3), np.float32)} if op == "Conv" else {}
    attributes = {} if weights else {"kernel_shape": [3, 3]}
    nodes = [
        helper.make_node(op, ["x", *weights], ["h"], **attributes),
        helper.make_node("GlobalAveragePool", ["h"], ["y"]),
    ]
    small = model(nodes, [("x", FLOAT, [1, 8, "h", "w"])], [("y", FLOAT, None)], weights)
    x = np.ones((1, 8, size, size), np.float32)
    module = fusion.compile(small, wait=True)
    with pytest.raises(ShapeError, match=r"smaller than its window|no elements"):
        module(x)
    assert np.isfinite(module(np.ones((1, 8, 4, 4), np.float32))[0]).all()
