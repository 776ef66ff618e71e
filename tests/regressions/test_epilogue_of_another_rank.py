"""An output of another rank than its anchor's made the comparison of indices raise; now the inverse map is asked."""

from __future__ import annotations

import numpy as np
from tvm import relax

from tests.backends.cpu.kernels.anchored import normal, run


def test_rows_split_in_two_axes_behind_a_matmul() -> None:
    data, weight = normal((12, 9), 0), normal((9, 16), 1)

    def build(b: relax.BlockBuilder, x: relax.Var) -> relax.Expr:
        rows = b.emit(relax.op.reshape(b.emit(relax.op.matmul(x, relax.const(weight))), (3, 4, 16)))
        return relax.op.nn.relu(rows)

    ran = run(build, [data], "llvm", 1)
    expected = np.maximum(data.astype("float64") @ weight, 0).reshape(3, 4, 16)
    np.testing.assert_allclose(ran.outputs[0], expected, atol=1e-5)
    assert ran.templates() == ["matmul"]
