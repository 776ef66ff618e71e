"""Operators that TVM has no form of run all the same."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

import fusion


def test_what_tvm_has_no_form_of_runs() -> None:
    rng = np.random.default_rng(0)
    x, y, z = rng.standard_normal((3, 2, 8, 3, 5)).astype(np.float32)
    odds = rng.dirichlet(np.ones(6), 2).astype(np.float32)
    numbers = np.append(rng.random(29), 1.0).astype(np.float32)[:, None]
    rows = rng.integers(0, 2, (30, 1))
    arrays = [x, y, z, odds, numbers, rows]
    params = [
        relax.Var(f"p{place}", relax.TensorType(array.shape, str(array.dtype))) for place, array in enumerate(arrays)
    ]
    builder = relax.BlockBuilder()
    with builder.function("main", params):
        with builder.dataflow():
            results = [
                op.ewise_fma(*params[:3]),
                op.nn.pixel_shuffle(params[0], 2),
                op.multinomial_from_uniform(*params[3:]),
                op.multinomial_from_uniform(op.strided_slice(params[3], [1], [0], [1]), *params[4:]),
            ]
            found = builder.emit_output(relax.Tuple(results))
        builder.emit_func_output(found)
    fused, shuffled, drawn, only = fusion.compile(builder.get(), threads=1, cache=False)(*arrays)
    np.testing.assert_allclose(fused, x * y + z, rtol=1e-6, atol=1e-6)
    expected = x.reshape(2, 2, 2, 2, 3, 5).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 6, 10)
    np.testing.assert_array_equal(shuffled, expected)
    sums = np.cumsum(odds, 1)[rows[:, 0]]
    np.testing.assert_array_equal(drawn[:, 0], np.minimum((sums <= numbers).sum(1), 5))
    np.testing.assert_array_equal(only, np.zeros_like(rows))
