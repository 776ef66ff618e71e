"""Running sums and products along an axis that is not the last, against NumPy."""

from __future__ import annotations

import numpy as np
from tvm import relax
from tvm.relax import op

import fusion
from tests.passes.modules import module

SHAPES = [((7, 33), 0), ((2, 5, 3), 1), ((3, 90, 70), -2), ((4, 9, 2, 65), 1), ((6, 1, 5), 0)]


def _expected(x: np.ndarray, axis: int, *, exclusive: bool, multiplies: bool) -> np.ndarray:
    found = (np.cumprod if multiplies else np.cumsum)(x, axis)
    if not exclusive:
        return found
    before = np.full_like(np.take(x, [0], axis), 1 if multiplies else 0)
    found = found if multiplies else before + found  # 0 - 0 is 0
    return np.concatenate([before, np.take(found, range(x.shape[axis] - 1), axis)], axis)


def test_every_column_is_scanned() -> None:
    random, arrays, wanted = np.random.default_rng(0), [], []
    forms = [(exclusive, multiplies) for exclusive in (False, True) for multiplies in (False, True)]
    for shape, axis in SHAPES:
        arrays.append((1 + 0.1 * random.standard_normal(shape)).astype("float32"))
        arrays[-1][(0,) * len(shape)] = -0.0
        wide = arrays[-1].astype("float64")
        wanted += [_expected(wide, axis, exclusive=first, multiplies=second) for first, second in forms]
    arrays.append(np.array([[np.nan, 1], [2, np.inf], [-np.inf, 3]], "float32"))
    arrays.append(random.integers(-9, 9, (6, 4)).astype("int32"))
    wanted += [np.cumsum(arrays[-2], 0), np.cumsum(arrays[-1], 0, dtype="int64")]

    def build(b: relax.BlockBuilder, *x: relax.Var) -> relax.Expr:
        made = []
        for value, (_, axis) in zip(x, SHAPES, strict=False):
            for exclusive, multiplies in forms:
                made.append((op.cumprod if multiplies else op.cumsum)(value, axis, exclusive=exclusive))
        made += [op.cumsum(x[-2], 0), op.cumsum(x[-1], 0, "int64")]
        return relax.Tuple([b.emit(each) for each in made])

    compiled = fusion.compile(module(build, arrays), threads=2, cache=False, database=False)
    for made, want in zip(compiled(*arrays), wanted, strict=True):
        np.testing.assert_allclose(made, want, rtol=1e-5, atol=1e-6)
        if made.dtype == np.float32:
            np.testing.assert_array_equal(np.signbit(made), np.signbit(want))
